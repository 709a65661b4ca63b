"""CPU affinity of whole process trees, where there is no cgroup to hold them.

The kernel hands affinity on to new threads and children, so only a change, and what a process changed
itself, needs work.
"""

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from corelane.cpuset import CPUSet, named
from corelane.kernel import proc

_PASSES = 50


class AffinityError(Exception):
    """The kernel refused an affinity, or a process tree would not come to rest."""


@dataclass(frozen=True, slots=True)
class Repinned:
    """Number of changed tasks, and those that we may not change (another user's: a setuid program's)."""

    changed: int
    refused: tuple[int, ...]


def wanted(current: CPUSet, cpus: CPUSet, previous: CPUSet | None = None) -> CPUSet:
    """The affinity a task should have so that a container keeps to `cpus`, as a cpuset would do it.

    A task that had all of `previous` follows to `cpus`. One that pinned itself more narrowly keeps its
    choice as far as it lies within `cpus`.
    """
    if previous is not None and current >= previous:
        return cpus
    return current & cpus or cpus


def repin(processes: Callable[[], Iterable[int]], cpus: CPUSet, previous: CPUSet | None = None) -> Repinned:
    """Bring every thread of every process to `cpus`, again and again until a whole pass finds nothing to do.

    `processes` lists the pids anew for each pass, so threads and children born meanwhile are found. Raises
    AffinityError if no CPU of `cpus` can be used or the tree does not come to rest.
    """
    done, refused = 0, set[int]()
    for _ in range(_PASSES):
        changed = sum(_pin(tid, cpus, previous, refused) for pid in processes() for tid in proc.tasks(pid))
        done += changed
        if not changed:
            return Repinned(done, tuple(sorted(refused)))
    raise AffinityError(
        f"tasks kept leaving {named(cpus.mask)} for {_PASSES} passes: something else changes their affinity"
    )


def _pin(tid: int, cpus: CPUSet, previous: CPUSet | None, refused: set[int]) -> bool:
    """Whether this changed the task; the kernel silently leaves out CPUs offline or outside its cpuset."""
    try:
        current = CPUSet(os.sched_getaffinity(tid))
        target = wanted(current, cpus, previous)
        if current == target or tid in refused:
            return False
        os.sched_setaffinity(tid, target)
        return CPUSet(os.sched_getaffinity(tid)) != current
    except ProcessLookupError:
        return False
    except PermissionError:
        refused.add(tid)
        return False
    except OSError as error:
        raise AffinityError(_explain(error, tid, cpus)) from error


def _explain(error: OSError, tid: int, cpus: CPUSet) -> str:
    if error.errno == errno.EINVAL:
        return f"task {tid} cannot be pinned to {named(cpus.mask)}: none is online and in its cpuset"
    return f"task {tid} cannot be pinned to {named(cpus.mask)}: {error.strerror}"
