"""What a quota costs threads that want to run, in closed form: the wait it causes and the time it takes.

From CFS bandwidth control (kernel documentation, sched-bwc): n threads use a quota Q up after Q/n and then
wait for the next period P. Quanta and ticks, which shift this by a few milliseconds, are the simulator's.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cost", "of"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What `threads` that run at once lose, at worst, to a quota.

    `stall_ms` is how long they stand still in every period, `lost_ms_per_s` the CPU time of which they are
    kept in every second, summed over them.
    """

    threads: int
    quota_ms: float
    period_ms: float
    stall_ms: float
    lost_ms_per_s: float

    @property
    def lost_share(self) -> float:
        """Of the CPU time that they want, the part that they do not get."""
        return self.lost_ms_per_s / (1000 * self.threads)

    @property
    def after_ms(self) -> float:
        """When in the period they have used the quota up."""
        return min(self.quota_ms / self.threads, self.period_ms)


def of(quota_us: int, period_us: int, threads: int) -> Cost:
    """The cost of a quota to `threads` (at least 1) busy threads."""
    quota, period = quota_us / 1000, period_us / 1000
    lost = max(0.0, threads * period - quota)
    return Cost(threads, quota, period, lost / threads, lost / period * 1000)
