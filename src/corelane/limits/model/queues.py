"""Threads, control groups and the run queues of CPUs: which thread runs next.

Every group has a queue on every CPU (the kernel's cfs_rq), which holds its threads there and the queues of
the groups below. A throttled queue is not in the queue above, so no thread in it is ever picked.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from corelane.limits.model.bandwidth import Account, BandwidthPool, CPUStat
from corelane.limits.model.clock import NEVER, Clock
from corelane.limits.model.turns import NICE_0, SUMMED_EVERY_NS, Load, Turns

# What a thread does, step by step, and what it waits for.
#
# A behaviour is a generator of steps: `yield RUN, 5 * MS`, `yield SLEEP, …`, `yield POLL, channel`, `yield
# SPIN, gate`. Between two steps no time passes, so a behaviour may read the clock, take what a channel
# holds, or call what wakes other threads.


RUN: Final = 0
"""Run for so many ns of CPU time."""
KERNEL: Final = 1
"""As RUN, inside a system call: with task-based throttling the thread is not throttled before its end."""
SLEEP: Final = 2
"""Sleep for so many ns."""
POLL: Final = 3
"""Wait until a channel holds something, as in epoll_wait: another thread may have taken it by then."""
SPIN: Final = 4
"""Run in a busy loop until a gate opens; or, after the gate's patience, sleep until it does."""

Step = tuple[int, Any]
Behaviour = Generator[Step, None, None]


class Channel:
    """A queue of items with sleeping threads; each item wakes the one that has slept the longest."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.sleepers: deque[Any] = deque()


class Gate:
    """A barrier: all waiting threads pass when it is opened; it is closed again for later ones."""

    def __init__(self, patience_ns: int = 0) -> None:
        self.patience_ns = patience_ns
        self.sleepers: list[Any] = []
        self.spinners: list[Any] = []

    def wait(self, thread: Any) -> bool:
        """Let a thread wait here; whether it spins."""
        if not self.patience_ns:
            self.sleepers.append(thread)
            return False
        self.spinners.append(thread)
        return True

    def fall_asleep(self, thread: Any) -> None:
        """Let a thread that spins sleep instead: its patience has ended."""
        self.spinners.remove(thread)
        self.sleepers.append(thread)


class CPUGroup:
    """A control group: shares, perhaps a pool, and what it has used in ns."""

    def __init__(
        self, name: str, parent: "CPUGroup | None", shares: int, pool: BandwidthPool | None, clock: Clock
    ) -> None:
        self.name, self.parent, self.shares, self.pool, self.clock = name, parent, shares, pool, clock
        self.usage_ns = self.runnable = 0
        self.queues: dict[int, RunQueue] = {}
        self.load, self.summed_at = 0.0, -SUMMED_EVERY_NS
        """The loads of its queues, summed up at that moment in ns (tg->load_avg)."""

    def stat(self) -> CPUStat:
        return self.pool.stat(self.usage_ns) if self.pool else CPUStat(usage_ns=self.usage_ns)

    def lineage(self) -> list["CPUGroup"]:
        """This group and those above it, without the root, the lowest first."""
        above: list[CPUGroup] = []
        group: CPUGroup | None = self
        while group is not None and group.parent is not None:
            above.append(group)
            group = group.parent
        return above


class Thread:
    """A thread: its behaviour's steps, and the CPU time in ns that the current step still takes."""

    def __init__(
        self, number: int, group: CPUGroup, queue: "RunQueue", allowed: int, steps: Behaviour
    ) -> None:
        """`allowed` is a mask of CPUs."""
        self.number, self.group, self.queue, self.allowed, self.steps = number, group, queue, allowed, steps
        self.left = 0
        self.vruntime = self.deadline = self.protected = self.lag = self.parted = 0.0
        self.weight = float(NICE_0)
        self.load = Load(queue.load_clock(), self.weight)
        """A new thread counts as one that has always run (init_entity_runnable_average)."""
        queue.load.average += self.weight
        self.ready = self.kernel = False
        self.spinning: Gate | None = None


class RunQueue(Account):
    """A group on one CPU. `ready` holds threads and queues; `listed` says that the queue above holds this.

    As an entity of the queue above it has a weight: the group's shares, spread over CPUs as its load is.
    """

    def __init__(self, group: CPUGroup, cpu: int, parent: "RunQueue | None") -> None:
        super().__init__(group.pool)
        self.group, self.cpu, self.parent = group, cpu, parent
        self.ready: list[Thread | RunQueue] = []
        self.listed = False
        self.vruntime = self.deadline = self.protected = self.lag = self.parted = self.floor = 0.0
        self.weight = float(group.shares)
        self.frozen = 0
        self.stopped: int | None = None
        self.load = Load(group.clock.now)
        self.levels: tuple[RunQueue, ...] = (self, *parent.levels) if parent else ()
        """This queue and those above it, but not the CPU's own."""

    def load_clock(self) -> int:
        """Time in ns, but for that in which the queue is throttled: its load is remembered meanwhile."""
        return (self.group.clock.now if self.stopped is None else self.stopped) - self.frozen

    def stop_load(self) -> None:
        self.stopped = self.group.clock.now

    def resume_load(self) -> None:
        if self.stopped is not None:
            self.frozen += self.group.clock.now - self.stopped
            self.stopped = None

    def share(self) -> float:
        """The part of the group's shares that counts on this CPU (calc_group_shares)."""
        group = self.group
        shares = float(group.shares)
        if len(group.queues) == 1:
            return shares
        now = group.clock.now
        if now - group.summed_at >= SUMMED_EVERY_NS:
            group.summed_at = now
            group.load = sum(queue.load.report(queue.load_clock()) for queue in group.queues.values())
        load = self.load
        here = max(load.queued, load.update(self.load_clock()))
        everywhere = max(group.load - load.reported, 0.0) + here
        return min(max(shares * here / everywhere, _LEAST_WEIGHT), shares) if everywhere else shares

    def reweigh(self, turns: Turns) -> None:
        """Count the shares anew."""
        above, weight = self.parent, self.share()
        if above is None or weight == self.weight:
            return
        if not self.listed:
            self.weight = weight
            return
        if above.parent is not None:
            above.load.change(above.load_clock(), weight - self.weight)
        turns.reweigh(above.ready, self, weight)


_LEAST_WEIGHT: Final = 2.0

FULL_SPEED = 1000
"""The speed of a CPU whose sibling is idle, in thousandths."""


class SimulatedCPU:
    """A logical CPU. Moments in ns; the stamp makes events of earlier plans stale."""

    def __init__(self, number: int, root: RunQueue, phase: int) -> None:
        self.id, self.bit, self.root, self.phase = number, 1 << number, root, phase
        self.curr: Thread | None = None
        self.settled = self.began = self.picked = self.stamp = 0
        self.sibling: SimulatedCPU | None = None
        self.speed = FULL_SPEED
        self.kicked = self.over = False
        """Whether it will reschedule at this moment; whether a slice has ended."""

    def step_end(self, thread: Thread) -> int:
        """Return when the running thread's step ends if nothing comes between."""
        left = thread.left if self.speed == FULL_SPEED else -(-thread.left * FULL_SPEED // self.speed)
        return self.settled + left

    def tick(self, every_ns: int, moment: int, now: int) -> int:
        """The first tick not before a moment, and after now; a tick of 0 is every moment."""
        if not every_ns:
            return max(moment, now)
        moment = max(moment, now + 1)
        return moment + (self.phase - moment) % every_ns

    def ticks(self, every_ns: int, now: int) -> bool:
        """Whether this is a tick."""
        return not every_ns or (now - self.phase) % every_ns == 0


# Which thread runs.


def enqueue(thread: Thread, turns: Turns, throttled: Callable[[RunQueue], None]) -> bool:
    """Put a thread on its queues; whether it may run. `throttled` gets a queue found without runtime."""
    thread.ready = True
    for level in thread.queue.levels:
        level.group.runnable += 1
    queue = thread.queue
    if turns.weighted:
        thread.load.change(queue.load_clock(), thread.weight)
    _insert(queue, thread, turns)
    return len(queue.ready) > 1 or admit(queue, turns, throttled)


def admit(queue: RunQueue, turns: Turns, throttled: Callable[[RunQueue], None]) -> bool:
    """Put a queue with its first entry on the queue above, and so on up; whether it may run."""
    while (above := queue.parent) is not None:
        if not _may_run(queue, throttled):
            for outer in queue.levels[1:]:
                if outer.throttled and outer.pool is not None:
                    outer.pool.waits(outer, below=True)
            return False
        if turns.weighted:
            queue.reweigh(turns)
        queue.listed = True
        _insert(above, queue, turns)
        if len(above.ready) > 1:
            return True
        queue = above
    return True


def _may_run(queue: RunQueue, throttled: Callable[[RunQueue], None]) -> bool:
    """check_enqueue_throttle: the first thread of a queue requests runtime before it runs."""
    pool = queue.pool
    if pool is None:
        return True
    if queue.throttled:
        pool.waits(queue)
        return False
    if (queue.remaining > 0 and not pool.expired(queue)) or pool.settle(queue, 0):
        return True
    throttled(queue)
    return False


def _insert(queue: RunQueue, entity: Thread | RunQueue, turns: Turns) -> None:
    if turns.weighted and queue.parent is not None:
        queue.load.change(queue.load_clock(), entity.weight)
    if turns.weighted and len(queue.ready) == 1 and isinstance(alone := queue.ready[0], RunQueue):
        alone.reweigh(turns)
    queue.floor = turns.join(queue.ready, entity, queue.floor)
    queue.ready.append(entity)


def dequeue(thread: Thread, turns: Turns) -> None:
    """Take a thread off its queues."""
    thread.ready = False
    for level in thread.queue.levels:
        level.group.runnable -= 1
    if turns.weighted:
        thread.load.change(thread.queue.load_clock(), -thread.weight)
    _remove(thread.queue, thread, turns)


def unlist(queue: RunQueue, turns: Turns) -> None:
    """Take a queue off the one above, and that off the next if it is empty now."""
    if queue.listed and queue.parent is not None:
        queue.listed = False
        _remove(queue.parent, queue, turns)


def _remove(queue: RunQueue, entity: Thread | RunQueue, turns: Turns) -> None:
    if turns.weighted and queue.parent is not None:
        queue.load.change(queue.load_clock(), -entity.weight)
    queue.floor = turns.part(queue.ready, entity, queue.floor)
    queue.ready.remove(entity)
    if not queue.ready:
        if queue.pool is not None:
            queue.pool.hand_back(queue)
        unlist(queue, turns)


def move(thread: Thread, new: RunQueue, turns: Turns) -> None:
    """Take a thread that is on no queue to another CPU's; its load goes with it (remove_entity_load_avg)."""
    old = thread.queue
    if turns.weighted:
        load = thread.load
        moved = load.update(old.load_clock())
        for source, target in zip(old.levels, new.levels, strict=True):
            here = source.load.update(source.load_clock())
            moved = min(moved, here)
            source.load.average -= moved
            target.load.update(target.load_clock())
            target.load.average += moved
            moved = source.weight * moved / here if here else 0.0
        load.carry(new.load_clock())
    thread.vruntime += new.floor - old.floor
    thread.parted += new.floor - old.floor
    thread.queue = new


def pick(queue: RunQueue, turns: Turns, current: Thread | None) -> Thread | None:
    """The next thread to run: on every level the entity with the next turn."""
    path: tuple[Thread | RunQueue, ...] = ()
    if current is not None and current.ready:
        path = (current, *current.queue.levels)
    depth = len(path)
    while queue.ready:
        depth -= 1
        running = path[depth] if depth >= 0 else None
        entity = turns.choose(queue.ready, running)
        if entity is not running:
            depth, entity.protected = 0, entity.deadline
        if not turns.eevdf:
            queue.floor = max(queue.floor, entity.vruntime)
        if isinstance(entity, Thread):
            return entity
        queue = entity
    return None


def notice(thread: Thread) -> None:
    """Let every level ask its pool for what it has used."""
    for queue in thread.queue.levels:
        if queue.pool is not None and not queue.throttled:
            queue.pool.settle(queue, 0)


def turn_left_ns(thread: Thread, turns: Turns) -> int:
    """Return the shortest turn left of the thread and of the groups that it is in, where others wait."""
    entity: Thread | RunQueue = thread
    queue: RunQueue | None = thread.queue
    left = NEVER
    while queue is not None:
        if len(queue.ready) > 1:
            left = min(left, turns.left_ns(entity))
        entity, queue = queue, queue.parent
    return left


def contended(thread: Thread) -> bool:
    """Whether another thread waits for the CPU while the thread runs."""
    queue: RunQueue | None = thread.queue
    while queue is not None:
        if len(queue.ready) > 1:
            return True
        queue = queue.parent
    return False


def waiting(queue: RunQueue) -> "list[Thread]":
    """Every thread that may be picked from a queue and those below it, the running one included."""
    threads: list[Thread] = []
    for entity in queue.ready:
        threads += [entity] if isinstance(entity, Thread) else waiting(entity)
    return threads


def queue_on(cpu: SimulatedCPU, group: CPUGroup) -> RunQueue:
    """Return the group's queue on a CPU; made where there is none yet."""
    if group.parent is None:
        return cpu.root
    queue = group.queues.get(cpu.id)
    if queue is None:
        queue = group.queues[cpu.id] = RunQueue(group, cpu.id, queue_on(cpu, group.parent))
    return queue
