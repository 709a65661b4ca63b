"""What the hardware is: CPUs, cores, caches, sockets, NUMA nodes, and where to read them from."""

from corelane.machine.model import CPU, IRQ, Device, Machine, MachineError, NUMANode
from corelane.machine.sources import load

__all__ = ["CPU", "IRQ", "Device", "Machine", "MachineError", "NUMANode", "load"]
