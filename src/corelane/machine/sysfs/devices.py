"""PCI devices with their locality, and interrupts whose affinity is the kernel's own."""

import re
from collections.abc import Sequence

from corelane.cpuset import CPUSet
from corelane.kernel.files import Tree
from corelane.machine.model import CPU, IRQ, Device
from corelane.machine.pci import kind_of
from corelane.machine.sysfs.values import numbered, read_int, read_list, read_mask

__all__ = ["read_irqs", "read_pci"]

_PCI_DIR = "bus/pci/devices"
_CLASS = re.compile("0x[0-9a-f]{6}")
_OWNER_WRITES = 0o200


def read_pci(sys: Tree, cpus: Sequence[CPU]) -> tuple[Device, ...]:
    """The devices, by address, without those of the chipset."""
    online = sum(1 << cpu.id for cpu in cpus)
    numa = {cpu.id: cpu.numa for cpu in cpus}
    found = (_read_device(sys, address, online, numa) for address in sys.names(_PCI_DIR))
    return tuple(device for device in found if device)


def _read_device(sys: Tree, address: str, online: int, numa: dict[int, int]) -> Device | None:
    where = f"{_PCI_DIR}/{address}"
    pci_class = (sys.read(f"{where}/class") or "").strip()
    kind = kind_of(int(pci_class, 16) >> 8) if _CLASS.fullmatch(pci_class) else None
    if kind is None:
        return None
    local = (read_mask(sys, f"{where}/local_cpulist", f"{where}/local_cpus") or 0) & online
    return Device(
        address=address,
        kind=kind,
        numa=_device_node(
            read_int(sys, f"{where}/numa_node"), {numa[cpu] for cpu in CPUSet.from_mask(local)}
        ),
        local_cpus=CPUSet.from_mask(local),
        pci_class=pci_class,
        vendor=(sys.read(f"{where}/vendor") or "").strip(),
        product=(sys.read(f"{where}/device") or "").strip(),
        driver=sys.target(f"{where}/driver") or "",
    )


def _device_node(told: int | None, near: set[int]) -> int | None:
    """What firmware tells; where it does not (-1), the one node that holds all the device's near CPUs."""
    if told is not None and told >= 0:
        return told
    return near.pop() if len(near) == 1 else None


def read_irqs(proc: Tree) -> tuple[IRQ, ...]:
    """The interrupts whose affinity nobody may write, as Linux since 6.11 shows what it manages itself."""
    found = (_read_irq(proc, number) for number in numbered(proc.names("irq"), ""))
    return tuple(irq for irq in found if irq)


def _read_irq(proc: Tree, number: int) -> IRQ | None:
    where = f"irq/{number}"
    mode = proc.mode(f"{where}/smp_affinity_list")
    if not mode or mode & _OWNER_WRITES:
        return None
    cpus = read_list(proc, f"{where}/effective_affinity_list") or read_list(
        proc, f"{where}/smp_affinity_list"
    )
    handlers = [name for name in proc.names(where) if proc.names(f"{where}/{name}")]
    return IRQ(number, CPUSet.from_mask(cpus or 0), ",".join(handlers))
