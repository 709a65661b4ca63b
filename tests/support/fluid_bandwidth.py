"""What arithmetic says of spinning threads under weights and quotas: a fluid, without ticks, slices or turns.

In every period each group runs on each CPU at its part of the weights there, until it has used its quota on
all CPUs together; then it is throttled up to the period's end, on every CPU where it has threads.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

PERIOD = 100.0
"""Milliseconds; all groups are refilled at the same moment."""


@dataclass(frozen=True)
class Spinners:
    """A group: its shares, its quota in ms of each period (None: no limit), and its threads on each CPU."""

    shares: int
    quota: float | None
    threads: tuple[int, ...]


def one_period(groups: Sequence[Spinners]) -> list[tuple[float, float]]:
    """Return CPU time used and time throttled, summed over CPUs, of each group in one period; in ms."""
    used, throttled, now = [0.0] * len(groups), [0.0] * len(groups), 0.0
    active = set(range(len(groups)))
    while active and now < PERIOD - 1e-9:
        rates = [sum(parts(groups, index, active)) if index in active else 0 for index in range(len(groups))]
        limited = [index for index in active if groups[index].quota is not None and rates[index] > 0]
        left = {index: (groups[index].quota - used[index]) / rates[index] for index in limited}
        step = min([PERIOD - now, *left.values()])
        now += step
        for index in active:
            used[index] += rates[index] * step
        for index in limited:
            if left[index] <= step + 1e-9:
                active.discard(index)
                throttled[index] = (PERIOD - now) * sum(count > 0 for count in groups[index].threads)
    return list(zip(used, throttled, strict=True))


def parts(groups: Sequence[Spinners], index: int, active: Collection[int] | None = None) -> list[float]:
    """The part of each of its CPUs that a group gets beside the `active` groups (None: beside all)."""
    beside = range(len(groups)) if active is None else active
    return [
        weight / sum(_weight(groups[other], cpu) for other in beside)
        for cpu in range(len(groups[index].threads))
        if (weight := _weight(groups[index], cpu))
    ]


def _weight(group: Spinners, cpu: int) -> float:
    """calc_group_shares: a group's shares are spread over CPUs as its threads are."""
    return group.shares * group.threads[cpu] / sum(group.threads)
