"""Notices that CPUs of this machine went off-line, came back, or were taken from the processes on it."""

import os
from collections.abc import Callable
from typing import Final

from corelane.cpuset import CPUSet
from corelane.kernel.files import Directory, Tree
from corelane.machine import sysfs
from corelane.machine.model import Machine, MachineError

_ONLINE: Final = "devices/system/cpu/online"


def own_cpus() -> CPUSet:
    """Return the CPUs that this process may use; the kernel keeps them within its cpuset."""
    return CPUSet(os.sched_getaffinity(0))


class MachineWatch:
    """Compares this machine's CPUs with those of `machine`, which was read before.

    `load` reads the machine anew, which takes longer than to look whether it changed: `sys` has the list of
    the CPUs that are on-line, and `allowed` returns those that may be used.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        load: Callable[[], Machine] = sysfs.live,
        sys: Tree | None = None,
        allowed: Callable[[], CPUSet] = own_cpus,
    ) -> None:
        self._cpus = _cpus(machine)
        self._load = load
        self._sys = sys or Directory("/sys")
        self._allowed = allowed
        self._signs: tuple[str, CPUSet] | None = None

    def changed(self) -> Machine | None:
        """Return the machine if its CPUs changed since the last call, else None. Blocks.

        Raises MachineError if it cannot be read or has no usable CPU, and OSError; the next call tries again.
        """
        signs = self._read_signs()
        if signs == self._signs:
            return None
        machine = self._load()
        if signs != self._read_signs():
            raise MachineError(f"{machine.source}: CPUs changed while they were read; they are read again")
        if not machine.usable:
            raise MachineError(
                f"{machine.source}: no CPU is both on-line ({machine.online}) and allowed ({machine.allowed})"
            )
        before, self._cpus, self._signs = self._cpus, _cpus(machine), signs
        return machine if self._cpus != before else None

    def _read_signs(self) -> tuple[str, CPUSet]:
        online = self._sys.read(_ONLINE)
        if online is None:
            raise MachineError(f"{_ONLINE} of /sys cannot be read: which CPUs are on-line is unknown")
        return online, self._allowed()


def _cpus(machine: Machine) -> tuple[object, ...]:
    """Return what changes when CPUs do; interrupts and devices come and go by themselves."""
    return machine.cpus, machine.online, machine.allowed, machine.isolated
