"""Which CPUs are online, present, isolated and tickless."""

from dataclasses import dataclass

from corelane.cpuset import bits, named, verb
from corelane.kernel.files import Tree
from corelane.machine.cmdline import argument, isolcpus, kernel_list
from corelane.machine.model import MachineError
from corelane.machine.sysfs.values import first_of, numbered, read_list

__all__ = ["CPU_DIR", "States", "read"]

CPU_DIR = "devices/system/cpu"


@dataclass(frozen=True, slots=True)
class States:
    """Masks of CPUs."""

    online: int
    offline: int
    isolated: int
    nohz_full: int
    managed_irq: int


def read(sys: Tree, proc: Tree, source: str, notes: list[str]) -> States:
    """From the kernel's lists, else from the CPUs' directories and the kernel's command line."""
    directories = sum(1 << cpu for cpu in numbered(sys.names(CPU_DIR), "cpu"))
    if not directories:
        raise MachineError(
            f"{source}: no CPUs under {CPU_DIR}; give a directory or an archive that holds a copy of /sys"
        )
    present = first_of((read_list(sys, f"{CPU_DIR}/present") or 0) & directories, directories)
    online = _online(sys, present, notes)
    cmdline = proc.read("cmdline") or ""
    isolated, managed_irq = isolcpus(cmdline, present)
    return States(
        online=online,
        offline=present & ~online,
        isolated=first_of(read_list(sys, f"{CPU_DIR}/isolated"), isolated) & present,
        nohz_full=first_of(
            read_list(sys, f"{CPU_DIR}/nohz_full"), kernel_list(argument(cmdline, "nohz_full"), present)
        )
        & present,
        managed_irq=managed_irq,
    )


def _online(sys: Tree, present: int, notes: list[str]) -> int:
    listed = read_list(sys, f"{CPU_DIR}/online") or 0
    if listed & ~present:
        gone = listed & ~present
        notes.append(f"{named(gone)} {verb(gone)} listed as online but {verb(gone)} not there: left out")
    if listed & present:
        return listed & present
    off = (cpu for cpu in bits(present) if (sys.read(f"{CPU_DIR}/cpu{cpu}/online") or "").strip() == "0")
    return present & ~sum(1 << cpu for cpu in off)
