"""The hardware: CPUs, cores, caches, sockets, NUMA nodes. `sources.load` reads all formats."""

from corelane.machine.model import CPU, IRQ, Device, Machine, MachineError, NUMANode

__all__ = ["CPU", "IRQ", "Device", "Machine", "MachineError", "NUMANode"]
