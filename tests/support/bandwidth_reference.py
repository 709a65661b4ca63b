"""CPU bandwidth control by brute force: every 50 µs every CPU is looked at. An oracle for corelane's model.

Written from the kernel's documents and not from the model: threads are pinned, and accounts are settled where
the kernel settles them (tick, wake-up, sleep). Times in ns. Nothing here is meant to be fast.
"""

from dataclasses import dataclass, field

STEP, MS = 50_000, 1_000_000
SLICE, KEEP, SLACK, NEAR = 5 * MS, 1 * MS, 5 * MS, 2 * MS


@dataclass(frozen=True, slots=True)
class Rules:
    """`clock` says what starts a throttled queue's clock: the throttle, its tasks, or any task below."""

    newest_first: bool = False
    expiry: bool = False
    clock: str = "any task below"


@dataclass(slots=True, eq=False)
class Group:
    """A group with a limit (quota 0: none) on CPUs, each with an account of its own."""

    parent: "Group | None"
    cpus: int
    quota: int = 0
    period: int = 100 * MS
    burst: int = 0
    phase: int = 0
    pool: int = 0
    before: int = 0
    refill_at: int | None = None
    slack_at: int | None = None
    idle: bool = False
    filling: int = 0
    waiting: list["Account"] = field(default_factory=list)
    accounts: list["Account"] = field(default_factory=list)
    periods: int = 0
    throttled: int = 0
    held: int = 0
    bursts: int = 0
    burst_time: int = 0
    usage: int = 0

    def __post_init__(self) -> None:
        self.pool = self.before = self.quota
        self.accounts = [Account(self, cpu) for cpu in range(self.cpus)]

    def counts(self) -> tuple[int, ...]:
        return self.periods, self.throttled, self.bursts

    def times(self) -> tuple[int, ...]:
        return self.held, self.burst_time, self.usage


@dataclass(slots=True, eq=False)
class Account:
    group: Group
    cpu: int
    left: int = 0
    throttled: bool = False
    since: int | None = None
    filling: int = 0
    entries: int = 0
    listed: bool = False


@dataclass(slots=True, eq=False)
class Thread:
    """Runs for `run`, sleeps for `sleep` (0: never), from `wake` on; alone on its CPU."""

    group: Group
    cpu: int
    wake: int | None
    run: int
    sleep: int
    left: int = 0
    ready: bool = False
    uncharged: int = 0
    running: bool = False


class Reference:
    """A machine of one thread a CPU. `tied`: when first two CPUs, or one and a timer, met at a pool."""

    def __init__(
        self, groups: list[Group], threads: list[Thread], tick: int, phases: list[int], rules: Rules
    ):
        self.groups, self.threads, self.tick, self.phases, self.rules = groups, threads, tick, phases, rules
        self.now = 0
        self.tied: int | None = None
        self._touched: dict[Group, tuple[int, object]] = {}

    def run(self, until: int) -> None:
        while self.now < until and self.tied is None:
            for group in self.groups:
                self._timers(group)
            for thread in self.threads:
                self._wake(thread)
            for thread in self.threads:
                self._look(thread)
            for thread in self.threads:
                if thread.running:
                    thread.uncharged += STEP
                    thread.left -= STEP
            self.now += STEP
        for thread in self.threads:
            self._charge(thread)

    def _touch(self, group: Group, who: object) -> None:
        when, other = self._touched.get(group, (-1, None))
        if self.tied is None and when == self.now and other != who:
            self.tied = self.now
        self._touched[group] = self.now, who

    # Timers.

    def _timers(self, group: Group) -> None:
        if group.refill_at == self.now:
            self._touch(group, "timer")
            self._refill(group)
        if group.slack_at == self.now:
            self._touch(group, "slack")
            group.slack_at = None
            assert group.refill_at is not None
            if group.refill_at - self.now >= NEAR and group.pool > SLICE:
                self._pay(group)

    def _refill(self, group: Group) -> None:
        over = group.before - (group.pool + group.quota)
        if over > 0:
            group.bursts += 1
            group.burst_time += over
        group.pool = group.before = min(group.pool + group.quota, group.quota + group.burst)
        group.periods += 1
        group.filling += 1
        if group.idle and not group.waiting:
            group.refill_at = None
            return
        group.refill_at = self.now + group.period
        group.idle = not group.waiting
        if group.waiting:
            group.throttled += 1
            self._pay(group)

    def _pay(self, group: Group) -> None:
        while group.waiting and group.pool > 0:
            account = group.waiting[0]
            paid = min(group.pool, 1 - account.left)
            group.pool -= paid
            account.left += paid
            account.filling = group.filling
            if account.left <= 0:
                return
            group.waiting.pop(0)
            account.throttled = False
            if account.since is not None:
                group.held += self.now - account.since
            account.since = None
            if account.entries:
                self._list(account)

    # Accounts.

    def _ask(self, account: Account, target: int) -> None:
        group = account.group
        self._touch(group, account.cpu)
        if group.refill_at is None:
            group.refill_at = self.now - (self.now - group.phase) % group.period + group.period
        if group.pool > 0:
            given = min(group.pool, target - account.left)
            group.pool -= given
            account.left += given
            group.idle = False
        account.filling = group.filling

    def _stale(self, account: Account) -> bool:
        return self.rules.expiry and account.filling != account.group.filling

    def _settle(self, account: Account, ran: int) -> None:
        account.left -= ran
        if account.left > 0 and not self._stale(account):
            return
        if not account.throttled:
            account.left = min(account.left, 0)
            self._ask(account, SLICE)

    def _throttle(self, account: Account) -> None:
        waiting = account.group.waiting
        account.throttled = True
        waiting.insert(0 if self.rules.newest_first else len(waiting), account)
        if account.entries or self.rules.clock == "throttle":
            account.since = self.now
        self._unlist(account)

    def _list(self, account: Account | None) -> None:
        """Put an account with its first entry on the one above, and so on, unless one has no runtime."""
        while account is not None:
            if account.group.quota:
                if account.throttled:
                    if account.since is None:
                        account.since = self.now
                    return
                if account.left <= 0 or self._stale(account):
                    self._settle(account, 0)
                if account.left <= 0:
                    self._throttle(account)
                    return
            account.listed = True
            account = self._above(account)
            if account is not None:
                account.entries += 1

    def _unlist(self, account: Account) -> None:
        above = self._above(account)
        if account.listed:
            account.listed = False
            if above is not None:
                above.entries -= 1
                self._left(above)

    def _left(self, account: Account) -> None:
        """Somebody has left: an empty account hands back what it does not keep."""
        if account.entries:
            return
        group, spare = account.group, account.left - KEEP
        if group.quota and spare > 0:
            account.left = KEEP
            if not self._stale(account):
                self._touch(group, account.cpu)
                group.pool += spare
                if group.pool > SLICE and group.waiting and group.slack_at is None:
                    assert group.refill_at is not None
                    soon = group.refill_at - self.now < SLACK + NEAR
                    group.slack_at = None if soon else self.now + SLACK
        self._unlist(account)

    @staticmethod
    def _above(account: Account) -> Account | None:
        parent = account.group.parent
        return None if parent is None else parent.accounts[account.cpu]

    @staticmethod
    def _path(thread: Thread) -> list[Account]:
        found, group = [], thread.group
        while group is not None:
            found.append(group.accounts[thread.cpu])
            group = group.parent
        return found

    # Threads.

    def _charge(self, thread: Thread) -> None:
        ran, thread.uncharged = thread.uncharged, 0
        for account in self._path(thread):
            account.group.usage += ran
            if account.group.quota and ran:
                self._settle(account, ran)

    def _wake(self, thread: Thread) -> None:
        if thread.wake != self.now:
            return
        thread.wake, thread.left, thread.ready = None, thread.run, True
        account = thread.group.accounts[thread.cpu]
        account.entries += 1
        self._list(account)
        self._set_aside(thread)

    def _look(self, thread: Thread) -> None:
        ends = thread.running and thread.left <= 0
        if ends or (thread.running and (self.now - self.phases[thread.cpu]) % self.tick == 0):
            self._charge(thread)
            if ends and thread.sleep:
                account = thread.group.accounts[thread.cpu]
                thread.ready, thread.wake = False, self.now + thread.sleep
                account.entries -= 1
                self._left(account)
            elif ends:
                thread.left = thread.run
            self._hold_back(thread)
        thread.running = thread.ready and all(one.listed for one in self._path(thread))

    def _hold_back(self, thread: Thread) -> None:
        for account in self._path(thread):
            if account.group.quota and not account.throttled and account.left <= 0:
                self._ask(account, 1)
                if account.left <= 0:
                    self._throttle(account)
        self._set_aside(thread)

    def _set_aside(self, thread: Thread) -> None:
        if thread.ready and self.rules.clock == "any task below":
            for account in self._path(thread):
                if account.throttled and account.since is None:
                    account.since = self.now
