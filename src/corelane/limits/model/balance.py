"""Where threads run that may run on several CPUs: on waking, on a CPU that goes idle, and now and then.

A simple stand-in for select_idle_sibling, newidle and periodic balancing: a CPU on which only throttled
queues are left counts as idle, as it does in the kernel.
"""

from typing import TYPE_CHECKING

from corelane.limits.model import queues
from corelane.limits.model.clock import MS
from corelane.limits.model.queues import NICE_0, Group, Thread

if TYPE_CHECKING:
    from corelane.limits.model.cpu import CPU
    from corelane.limits.model.engine import System

__all__ = ["INTERVAL_NS", "even_out", "for_waking", "pull"]

INTERVAL_NS = 64 * MS
"""How often busy CPUs are balanced: 4 ms of a domain of four, 16 times less often while busy."""


def for_waking(system: "System", thread: Thread) -> "CPU":
    """The CPU where the thread was if that is idle, else the next idle one, else where it was."""
    last = thread.queue.cpu
    idle = system.idle & thread.allowed
    if not idle or idle >> last & 1:
        return system.cpus[last]
    ahead = idle >> last << last or idle
    return system.cpus[(ahead & -ahead).bit_length() - 1]


def pull(system: "System", cpu: "CPU") -> bool:
    """Fetch a thread that waits elsewhere, from where most do; whether there was one."""
    best: list[Thread] = []
    for other in _of(system, system.crowded & ~cpu.bit):
        found = [one for one in _waiting(other) if _may_move(system, one, cpu)]
        if len(found) > len(best):
            best = found
    if best:
        system.migrate(best[0], cpu)
    return bool(best)


def even_out(system: "System") -> None:
    """Move a thread from the most to the least loaded CPU while that makes them more even."""
    loads = {cpu: _load(cpu) for cpu in system.cpus}
    for _ in system.cpus:
        most, least = max(loads, key=lambda cpu: loads[cpu]), min(loads, key=lambda cpu: loads[cpu])
        gap = loads[most] - loads[least]
        movable = [one for one in _waiting(most) if _may_move(system, one, least)]
        fit = [one for one in movable if 0 < _weight(one) < gap]
        if not fit:
            return
        thread = min(fit, key=lambda one: abs(gap - 2 * _weight(one)))
        loads[most] -= _weight(thread)
        loads[least] += _weight(thread)
        system.migrate(thread, least)


def _of(system: "System", mask: int) -> "list[CPU]":
    return [cpu for cpu in system.cpus if mask & cpu.bit]


def _waiting(cpu: "CPU") -> list[Thread]:
    return [thread for thread in queues.waiting(cpu.root) if thread is not cpu.curr]


def _may_move(system: "System", thread: Thread, cpu: "CPU") -> bool:
    """Never to a CPU on which its group is throttled (throttled_lb_pair)."""
    if not thread.allowed & cpu.bit:
        return False
    return not any(level.throttled for level in system.queue(thread.group, cpu.id).levels)


def _load(cpu: "CPU") -> float:
    return sum(map(_weight, queues.waiting(cpu.root)))


def _weight(thread: Thread) -> float:
    """The thread's part of the shares of its topmost group."""
    lineage: list[Group] = thread.group.lineage()
    return lineage[-1].shares / max(lineage[-1].runnable, 1) if lineage else NICE_0
