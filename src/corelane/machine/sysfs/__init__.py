"""A machine from sysfs and procfs: live, or a copy of them in a directory or an archive.

Kernel ABI: ABI/stable/sysfs-devices-system-cpu and -node, admin-guide/cputopology in its Documentation.
Firmware and old kernels give wrong values or none; docs/machines.md lists the substitutes.
"""

import os

from corelane.cpuset import CPUSet
from corelane.kernel.files import Directory, Tree
from corelane.machine import model
from corelane.machine.model import Machine
from corelane.machine.sysfs import cores, nodes

__all__ = ["discover", "live"]


def live() -> Machine:
    """This machine. `allowed` is this process's affinity, which the kernel keeps within our cpuset."""
    allowed = CPUSet(os.sched_getaffinity(0)).mask
    name = os.uname().nodename
    return discover(
        Directory("/sys"), Directory("/proc"), name=name, source="/sys and /proc", allowed=allowed
    )


def discover(sys: Tree, proc: Tree, *, name: str, source: str, allowed: int | None = None) -> Machine:
    """The machine that these trees describe; every CPU is `allowed` unless a mask says otherwise.

    Raises MachineError when no CPU is to be found; anything less becomes a note in the machine.
    """
    notes: list[str] = []
    state = nodes.read_states(sys, proc, source, notes, allowed or 0)
    raw_nodes = nodes.read_nodes(sys, proc, notes)
    cpus = cores.read(sys, state.online, raw_nodes, notes)
    notes += model.crossings(cpus)
    return Machine(
        name=name,
        cpus=cpus,
        nodes=nodes.build(raw_nodes, cpus),
        online=CPUSet.from_mask(state.online),
        offline=CPUSet.from_mask(state.offline),
        allowed=CPUSet.from_mask(state.online if allowed is None else allowed),
        isolated=CPUSet.from_mask(state.isolated),
        nohz_full=CPUSet.from_mask(state.nohz_full),
        managed_irq=CPUSet.from_mask(state.managed_irq),
        devices=nodes.read_pci(sys, cpus),
        irqs=nodes.read_irqs(proc),
        notes=tuple(notes),
        source=source,
    )
