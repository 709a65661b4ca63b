"""A CPU limit as the kernel takes it: quota, period and burst, and what it refuses (EINVAL) and why."""

from dataclasses import dataclass

from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.switches import LATEST, Switches

__all__ = ["MAX_QUOTA_US", "Limit", "refusal"]

MIN_US, MAX_PERIOD_US = 1_000, 1_000_000
MAX_QUOTA_US = (1 << 44) - 1


@dataclass(frozen=True, slots=True)
class Limit:
    """So much CPU time in every period, and at most `burst_ns` saved from earlier ones. Times in ns."""

    quota_ns: int
    period_ns: int = 100 * MS
    burst_ns: int = 0

    @property
    def cpus(self) -> float:
        """How many CPUs the limit is worth."""
        return self.quota_ns / self.period_ns

    def check(self, switches: Switches = LATEST) -> None:
        """Raise ValueError, saying which of its rules this breaks, where such a kernel answers EINVAL."""
        reason = refusal(self.quota_ns // US, self.period_ns // US, self.burst_ns // US)
        if self.burst_ns and not switches.burst:
            reason = "this kernel has no burst; it came with 5.14"
        if reason:
            raise ValueError(reason)


def refusal(
    quota_us: int, period_us: int, burst_us: int = 0, parent: tuple[int, int] | None = None
) -> str | None:
    """Why the kernel answers EINVAL to these values, None if it takes them; a quota of -1 is no limit.

    `parent` is the quota and period of the group above under cgroup v1, where a group may not have more of a
    CPU than the one above; version 2 has no such rule. Source: tg_set_cfs_bandwidth and __cfs_schedulable.
    """
    unlimited = quota_us < 0
    if not MIN_US <= period_us <= MAX_PERIOD_US:
        return f"a period of {_amount(period_us)} is not between 1 ms and 1 s"
    if not unlimited and quota_us < MIN_US:
        return f"a quota of {_amount(quota_us)} is less than 1 ms"
    if quota_us > MAX_QUOTA_US:
        return f"a quota of {quota_us} µs is more than 2^44 - 1 µs"
    if not unlimited and burst_us > quota_us:
        return f"a burst of {_amount(burst_us)} is more than the quota of {_amount(quota_us)}"
    if not unlimited and burst_us + quota_us > MAX_QUOTA_US:
        return f"quota and burst together are {quota_us + burst_us} µs, more than 2^44 - 1 µs"
    if burst_us < 0:
        return f"a burst of {burst_us} µs is negative"
    return None if unlimited or parent is None else _above(quota_us, period_us, *parent)


def _above(quota_us: int, period_us: int, parent_quota_us: int, parent_period_us: int) -> str | None:
    """The kernel compares ratios in fixed point, 20 bits after the point."""
    own, above = (quota_us << 20) // period_us, (parent_quota_us << 20) // parent_period_us
    if parent_quota_us < 0 or own <= above:
        return None
    return (
        f"{quota_us / period_us:g} CPUs are more than the {parent_quota_us / parent_period_us:g} "
        "of the group above"
    )


def _amount(us: int) -> str:
    if us < 0 or us % 1_000:
        return f"{us} µs"
    return f"{us // 1_000} ms" if us < SECOND // US else f"{us / 1e6:g} s"
