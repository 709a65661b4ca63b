"""A group's CPU bandwidth (kernel/sched/fair.c): its limit, the pool filled every period, each CPU's account.

A `CFSLimit` is quota, period and burst as the kernel takes them, or refuses them with EINVAL. A
`BandwidthPool` is the kernel's cfs_bandwidth, an `Account` the bandwidth part of a cfs_rq. An account is
charged for what runs; when it is empty it requests a slice from the pool, and when the pool is empty too, its
CPU is throttled until a refill, or runtime returned by another CPU, has paid its debt.
"""

import re
from collections import deque
from dataclasses import astuple, dataclass, replace
from operator import sub
from typing import Literal, Protocol

from corelane.limits.model.clock import MS, NEVER, SECOND, US, Clock

# What changed in the kernel's bandwidth control over the years: a switch each, and kernels as presets.
#
# Distributions port changes back, so a version number is where to begin, not the truth about a node.


Order = Literal["head", "mixed", "tail"]


@dataclass(frozen=True, slots=True)
class Switches:
    """A kernel's bandwidth control. Times in ns."""

    order: Order = "tail"
    """Where a throttled CPU joins the list that refills serve from its head: there (c06f04c70489, 3.17),
    there only while a refill is being handed out (baa9be4ffb55, 4.19), or at its tail (e98fa02c4f2e, 5.8)."""

    expiry: bool = False
    """Slices not used by the refill are lost (512ac999d275, 4.18, until de53fd7aedb1, 5.4)."""

    burst: bool = True
    """cpu.max.burst is there (f4183717b370, 5.14)."""

    clock_needs_tasks: bool = True
    """Throttled time of a CPU counts only while there is a task it holds back (79462e8c879a, 6.6)."""

    task_throttling: bool = True
    """Tasks are set aside one by one on their way out of the kernel, not whole CPUs at once (6.18)."""

    eevdf: bool = True
    """A task that has slept gets no head start over one that runs (6.6)."""

    slice_ns: int = 5 * MS
    """Runtime that a CPU takes from the pool at once: sched_cfs_bandwidth_slice_us."""

    keep_ns: int = 1 * MS
    """Runtime that an idle CPU does not return: min_cfs_rq_runtime."""

    slack_ns: int = 5 * MS
    """Time from the return of runtime until it is distributed: cfs_bandwidth_slack_period."""

    near_refill_ns: int = 2 * MS
    """Runtime is not handed out so close to a refill: min_bandwidth_expiration."""

    release_ns: int = 4 * US
    """Time that the release of one CPU takes while a refill is distributed; for the order "mixed" only."""

    base_slice_ns: int = 700 * US
    """Time that a task runs before another gets its turn, on one CPU; grows with the number of CPUs."""


LATEST = Switches()
_V6_6 = replace(LATEST, task_throttling=False, base_slice_ns=750 * US)
_V5_14 = replace(_V6_6, eevdf=False, clock_needs_tasks=False)
_V5_8 = replace(_V5_14, burst=False)
_V5_4 = replace(_V5_8, order="mixed")
_V4_19 = replace(_V5_4, expiry=True)
_V4_18 = replace(_V4_19, order="head")
_V3_17 = replace(_V4_18, expiry=False)

KERNELS = {
    "3.17": _V3_17,
    "4.18": _V4_18,
    "4.19": _V4_19,
    "5.4": _V5_4,
    "5.8": _V5_8,
    "5.14": _V5_14,
    "6.6": _V6_6,
    "6.18": LATEST,
}
"""Kernels in which something changed, oldest first."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:[.\-+].*)?")


def for_kernel(version: str) -> Switches:
    """The preset of the newest kernel in `KERNELS` that is not newer than such as `5.10` or `6.1.0-18-amd64`.

    Raises ValueError for text that is not a version and for kernels before 3.17.
    """
    match = _VERSION.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r} is not a kernel version: write such as 5.10 or 6.18")
    number = int(match[1]), int(match[2])
    older = [name for name in KERNELS if tuple(map(int, name.split("."))) <= number]
    if not older:
        raise ValueError(f"kernel {version} is older than the oldest modelled kernel, {next(iter(KERNELS))}")
    return KERNELS[older[-1]]


MIN_US, MAX_PERIOD_US = 1_000, 1_000_000
MAX_QUOTA_US = (1 << 44) - 1


@dataclass(frozen=True, slots=True)
class CFSLimit:
    """CPU time in every period, and at most `burst_ns` saved from earlier ones. Times in ns."""

    quota_ns: int
    period_ns: int = 100 * MS
    burst_ns: int = 0

    @property
    def granted(self) -> "CFSLimit":
        """The limit as the kubelet writes it: a quota of 1 ms or more (cm/helpers_linux.go)."""
        return self if self.quota_ns >= MIN_US * US else replace(self, quota_ns=MIN_US * US)

    def check(self, switches: Switches = LATEST) -> None:
        """Raise ValueError with the violated rule where such a kernel answers EINVAL."""
        reason = refusal(self.quota_ns // US, self.period_ns // US, self.burst_ns // US)
        if self.burst_ns and not switches.burst:
            reason = "this kernel has no burst; it came with 5.14"
        if reason:
            raise ValueError(reason)


def refusal(
    quota_us: int, period_us: int, burst_us: int = 0, parent: tuple[int, int] | None = None
) -> str | None:
    """Return why the kernel answers EINVAL to these values, None if it accepts them; quota -1 is no limit.

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
    if unlimited or parent is None or parent[0] < 0:
        return None
    # The kernel compares ratios in fixed point, 20 bits after the point.
    (above_us, every_us), own = parent, (quota_us << 20) // period_us
    if own <= (above_us << 20) // every_us:
        return None
    return f"{quota_us / period_us:g} CPUs are more than the {above_us / every_us:g} of the group above"


def _amount(us: int) -> str:
    if us < 0 or us % 1_000:
        return f"{us} µs"
    return f"{us // 1_000} ms" if us < SECOND // US else f"{us / 1e6:g} s"


@dataclass(frozen=True, slots=True)
class CPUStat:
    """The counters of cpu.stat. Times in ns; `throttled_ns` is the sum over CPUs, counted at each release."""

    nr_periods: int = 0
    nr_throttled: int = 0
    throttled_ns: int = 0
    nr_bursts: int = 0
    burst_ns: int = 0
    usage_ns: int = 0

    def __sub__(self, earlier: "CPUStat") -> "CPUStat":
        return CPUStat(*map(sub, astuple(self), astuple(earlier)))


class Account:
    """One CPU's part of a pool: runtime left in ns (negative: debt), and since when it is throttled."""

    def __init__(self, pool: "BandwidthPool | None") -> None:
        self.pool = pool
        self.remaining = 0
        self.throttled = False
        self.since: int | None = None
        self.filling = 0


class Observer(Protocol):
    """Receives the events of a pool."""

    def released(self, account: Account) -> None:
        """Its CPU may run the group again."""

    def refilled(self, pool: "BandwidthPool") -> None:
        """A period has begun, and what throttled CPUs owed has been paid as far as it goes."""


class BandwidthPool:
    """The budget of one group. `runtime` is what no CPU has taken yet, in ns."""

    def __init__(
        self, clock: Clock, limit: CFSLimit, switches: Switches, observer: Observer, phase_ns: int = 0
    ) -> None:
        """Refills are at `phase_ns` + k periods, while runtime is requested.

        Raises ValueError where the kernel would answer EINVAL.
        """
        limit.check(switches)
        self.limit = limit
        self.runtime = self._before = limit.quota_ns
        self.filling = 1
        self.throttled: deque[Account] = deque()
        self._clock, self._switches, self._observer = clock, switches, observer
        self._phase = phase_ns % limit.period_ns
        self._next_refill = NEVER
        self._active = self._idle = self._slack_started = False
        self._handing_out_until = -1
        self._stat = CPUStat()
        self._throttled_ns = 0

    def stat(self, usage_ns: int = 0) -> CPUStat:
        """The counters now; the pool does not know what the group has used."""
        return replace(self._stat, throttled_ns=self._throttled_ns, usage_ns=usage_ns)

    def next_refill(self) -> int:
        """The moment of the next refill, or of the one that a request now would start."""
        if self._active:
            return self._next_refill
        period = self.limit.period_ns
        return self._clock.now + period - (self._clock.now - self._phase) % period

    # Called for CPUs.

    def request(self, account: Account, target_ns: int) -> bool:
        """Bring an account to `target_ns`, or as near as the pool can; whether it may run."""
        if not self._active:
            # A grid as old as the group; only those refills count that runtime was requested for.
            self._next_refill = self.next_refill()
            self._active = True
            self._clock.at(self._next_refill, self._refill)
        if self.runtime > 0:
            given = min(self.runtime, target_ns - account.remaining)
            self.runtime -= given
            account.remaining += given
            self._idle = False
        account.filling = self.filling
        return account.remaining > 0

    def expired(self, account: Account) -> bool:
        """Whether the remaining runtime was for a period that is over."""
        return self._switches.expiry and account.remaining > 0 and account.filling != self.filling

    def settle(self, account: Account, ran_ns: int) -> bool:
        """Charge what ran; return whether the account may go on, with a new slice if necessary."""
        account.remaining -= ran_ns
        if account.remaining > 0:
            if not self.expired(account):
                return True
            account.remaining = 0
        return self.request(account, self._switches.slice_ns)

    def hand_back(self, account: Account) -> None:
        """Return the runtime that a CPU without runnable threads of the group does not keep."""
        spare = account.remaining - self._switches.keep_ns
        if spare <= 0:
            return
        account.remaining -= spare
        if self._switches.expiry and account.filling != self.filling:
            return
        self.runtime += spare
        if self.throttled and self.runtime > self._switches.slice_ns:
            switches, now = self._switches, self._clock.now
            # Not distributed twice at once, nor so late that the refill comes first.
            soon = self._next_refill - now < switches.slack_ns + switches.near_refill_ns
            if not self._slack_started and not soon:
                self._slack_started = True
                self._clock.at(now + switches.slack_ns, self._slack)

    def throttle(self, account: Account, *, holds_tasks: bool) -> None:
        """Throttle a CPU until its debt is paid."""
        account.throttled = True
        order = self._switches.order
        if order == "head" or (order == "mixed" and self._clock.now < self._handing_out_until):
            self.throttled.appendleft(account)
        else:
            self.throttled.append(account)
        if holds_tasks or not self._switches.clock_needs_tasks:
            account.since = self._clock.now

    def waits(self, account: Account, *, below: bool = False) -> None:
        """A task has arrived at a throttled CPU: from now on it is throttled.

        If it waits in a throttled queue `below`, that counts here too only where tasks are set aside one by
        one (record_throttle_clock); else a queue is empty while all below it are throttled.
        """
        if account.since is None and (self._switches.task_throttling or not below):
            account.since = self._clock.now

    # Called by timers.

    def _refill(self, _argument: object = None, _stamp: int = 0) -> None:
        limit, before = self.limit, self._before
        self.runtime += limit.quota_ns
        over = max(before - self.runtime, 0)
        self.runtime = self._before = min(self.runtime, limit.quota_ns + limit.burst_ns)
        self.filling += 1
        throttled = bool(self.throttled)
        stat = self._stat
        self._stat = CPUStat(
            stat.nr_periods + 1,
            stat.nr_throttled + throttled,
            0,
            stat.nr_bursts + (over > 0),
            stat.burst_ns + over,
        )
        if self._idle and not throttled:
            self._active = False
            self._observer.refilled(self)
            return
        self._idle = not throttled
        self._next_refill += limit.period_ns
        self._clock.at(self._next_refill, self._refill)
        self._hand_out()
        self._observer.refilled(self)

    def _hand_out(self) -> None:
        """Pay debts in the order of the list; an account with 1 ns left may run."""
        waiting, switches = self.throttled, self._switches
        self._handing_out_until = self._clock.now + len(waiting) * switches.release_ns
        while waiting and self.runtime > 0:
            account = waiting[0]
            paid = min(self.runtime, 1 - account.remaining)
            self.runtime -= paid
            account.remaining += paid
            account.filling = self.filling
            if account.remaining > 0:
                waiting.popleft()
                account.throttled = False
                if account.since is not None:
                    self._throttled_ns += self._clock.now - account.since
                self._observer.released(account)
                account.since = None

    def _slack(self, _argument: object = None, _stamp: int = 0) -> None:
        self._slack_started = False
        switches = self._switches
        near = self._next_refill - self._clock.now < switches.near_refill_ns
        if not near and self.runtime > switches.slice_ns:
            self._hand_out()
