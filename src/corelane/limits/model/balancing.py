"""Which CPU a thread runs on: what select_idle_sibling, newidle and periodic balancing do.

A CPU on which only throttled queues are left counts as idle, as it does in the kernel.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from corelane.limits.model.clock import MS
from corelane.limits.model.queues import SimulatedCPU, Thread, queue_on, waiting
from corelane.limits.model.turns import NICE_0

BALANCE_INTERVAL_NS: Final = 64 * MS
"""How often busy CPUs are balanced: 4 ms of a domain of four, 16 times less often while busy."""


def cpu_for_waking(thread: Thread, idle: int, waker: int | None) -> int:
    """Return the thread's last CPU if that is idle, else the next idle one.

    Where none is, the thread wakes on the CPU of its `waker` (wake_affine), or on its last one. `idle` is a
    mask of CPUs.
    """
    last = thread.queue.cpu
    idle &= thread.allowed
    if not idle:
        return last if waker is None or not thread.allowed >> waker & 1 else waker
    if idle >> last & 1:
        return last
    ahead = idle >> last << last or idle
    return (ahead & -ahead).bit_length() - 1


def thread_to_pull(cpus: Sequence[SimulatedCPU], crowded: int, puller: SimulatedCPU) -> Thread | None:
    """Return a thread that may move to the idle `puller`, from the crowded CPU with most of them."""
    best: list[Thread] = []
    for cpu in cpus:
        if crowded & ~puller.bit & cpu.bit:
            movable = [thread for thread in _waiting_for(cpu) if _may_move(thread, puller)]
            if len(movable) > len(best):
                best = movable
    return best[0] if best else None


def balancing_moves(cpus: Sequence[SimulatedCPU]) -> Iterator[tuple[Thread, SimulatedCPU]]:
    """Yield moves from the most to the least loaded CPU while one makes them more even.

    The caller carries out each move before it requests the next.
    """
    loads = {cpu: sum(map(_weight, waiting(cpu.root))) for cpu in cpus}
    for _ in cpus:
        most, least = max(loads, key=lambda cpu: loads[cpu]), min(loads, key=lambda cpu: loads[cpu])
        gap = loads[most] - loads[least]
        movable = [thread for thread in _waiting_for(most) if _may_move(thread, least)]
        fitting = [thread for thread in movable if 0 < _weight(thread) < gap]
        if not fitting:
            return
        thread = min(fitting, key=lambda each: abs(gap - 2 * _weight(each)))
        loads[most] -= _weight(thread)
        loads[least] += _weight(thread)
        yield thread, least


def _waiting_for(cpu: SimulatedCPU) -> list[Thread]:
    return [thread for thread in waiting(cpu.root) if thread is not cpu.curr]


def _may_move(thread: Thread, cpu: SimulatedCPU) -> bool:
    """Whether a CPU is allowed, and the thread's group is not throttled there (throttled_lb_pair)."""
    if not thread.allowed & cpu.bit:
        return False
    return not any(level.throttled for level in queue_on(cpu, thread.group).levels)


def _weight(thread: Thread) -> float:
    """The thread's part of the shares of its topmost group."""
    lineage = thread.group.lineage()
    return lineage[-1].shares / max(lineage[-1].runnable, 1) if lineage else NICE_0
