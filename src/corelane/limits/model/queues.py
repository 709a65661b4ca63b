"""Threads, control groups and the run queues of CPUs: which thread runs next, and on which CPU it runs.

A thread's behaviour is a generator of steps: `yield RUN, 5 * MS`, `yield SLEEP, …`, `yield POLL, channel`,
`yield SPIN, gate`. Between two steps no time passes, so a behaviour may read the clock, take what a channel
holds, or call what wakes other threads.

Every group has a queue on every CPU (the kernel's cfs_rq), which holds its threads there and the queues of
the groups below. A throttled queue is not in the queue above, so no thread in it is ever picked.

Placement stands in for select_idle_sibling, newidle and periodic balancing: a CPU on which only throttled
queues are left counts as idle, as it does in the kernel.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from corelane.limits.model.bandwidth import Account, BandwidthPool, CPUStat
from corelane.limits.model.clock import MS

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

    __slots__ = ("items", "sleepers")

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.sleepers: deque[Any] = deque()


class Gate:
    """A barrier: all waiting threads pass when it is opened; it is closed again for later ones."""

    __slots__ = ("patience_ns", "sleepers", "spinners")

    def __init__(self, patience_ns: int = 0) -> None:
        self.patience_ns = patience_ns
        self.sleepers: list[Any] = []
        self.spinners: list[Any] = []


NICE_0 = 1024
"""The weight of a thread, and of a group with the shares of one CPU."""


class CPUGroup:
    """A control group: shares, perhaps a pool, and what it has used in ns."""

    __slots__ = ("name", "parent", "pool", "queues", "runnable", "shares", "usage_ns")

    def __init__(self, name: str, parent: "CPUGroup | None", shares: int, pool: BandwidthPool | None) -> None:
        self.name, self.parent, self.shares, self.pool = name, parent, shares, pool
        self.usage_ns = self.runnable = 0
        self.queues: dict[int, RunQueue] = {}

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

    __slots__ = (
        "allowed",
        "group",
        "kernel",
        "left",
        "number",
        "queue",
        "ready",
        "spinning",
        "steps",
        "vruntime",
    )

    def __init__(
        self, number: int, group: CPUGroup, queue: "RunQueue", allowed: int, steps: Behaviour
    ) -> None:
        """`allowed` is a mask of CPUs."""
        self.number, self.group, self.queue, self.allowed, self.steps = number, group, queue, allowed, steps
        self.left = self.vruntime = 0
        self.ready = self.kernel = False
        self.spinning: Gate | None = None

    def charge(self, ran_ns: int) -> None:
        self.vruntime += ran_ns


class RunQueue(Account):
    """A group on one CPU. `ready` holds threads and queues; `listed` says that the queue above holds this."""

    __slots__ = ("cpu", "floor", "group", "levels", "listed", "parent", "ready", "threads", "vruntime")

    def __init__(self, group: CPUGroup, cpu: int, parent: "RunQueue | None") -> None:
        super().__init__(group.pool)
        self.group, self.cpu, self.parent = group, cpu, parent
        self.ready: list[Thread | RunQueue] = []
        self.listed = False
        self.threads = self.vruntime = self.floor = 0
        self.levels: tuple[RunQueue, ...] = (self, *parent.levels) if parent else ()
        """This queue and those above it, but not the CPU's own."""

    def charge(self, ran_ns: int) -> None:
        """Virtual time goes the slower, the larger the part of the group's shares that counts here.

        calc_group_shares: the shares are spread over CPUs as the group's load is.
        """
        group = self.group
        self.vruntime += ran_ns * NICE_0 * group.runnable // (group.shares * (self.threads or 1))


FULL_SPEED = 1000
"""The speed of a CPU whose sibling is idle, in thousandths."""


class SimulatedCPU:
    """A logical CPU. Moments in ns; the stamp makes events of earlier plans stale."""

    __slots__ = (
        "began",
        "bit",
        "curr",
        "id",
        "kicked",
        "phase",
        "picked",
        "root",
        "settled",
        "sibling",
        "speed",
        "stamp",
    )

    def __init__(self, number: int, root: RunQueue, phase: int) -> None:
        self.id, self.bit, self.root, self.phase = number, 1 << number, root, phase
        self.curr: Thread | None = None
        self.settled = self.began = self.picked = self.stamp = 0
        self.sibling: SimulatedCPU | None = None
        self.speed = FULL_SPEED
        self.kicked = False

    def step_end(self, thread: Thread) -> int:
        """When the running thread's step ends, were nothing to come between."""
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


def enqueue(thread: Thread, head_start_ns: int, throttled: Callable[[RunQueue], None]) -> bool:
    """Put a thread on its queues; whether it may run. `throttled` gets a queue found without runtime."""
    thread.ready = True
    for level in thread.queue.levels:
        level.threads += 1
        level.group.runnable += 1
    queue = thread.queue
    _insert(queue, thread, head_start_ns)
    return len(queue.ready) > 1 or admit(queue, head_start_ns, throttled)


def admit(queue: RunQueue, head_start_ns: int, throttled: Callable[[RunQueue], None]) -> bool:
    """Put a queue with its first entry on the queue above, and so on up; whether it may run."""
    while (above := queue.parent) is not None:
        if not _may_run(queue, throttled):
            _wait_above(queue)
            return False
        queue.listed = True
        _insert(above, queue, head_start_ns)
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


def _wait_above(queue: RunQueue) -> None:
    for above in queue.levels[1:]:
        if above.throttled and above.pool is not None:
            above.pool.waits(above, below=True)


def _insert(queue: RunQueue, entity: Thread | RunQueue, head_start_ns: int) -> None:
    """No entity is added with more than `head_start_ns` of virtual time behind the running one."""
    least = queue.floor - head_start_ns
    entity.vruntime = max(entity.vruntime, least)
    queue.ready.append(entity)


def dequeue(thread: Thread) -> None:
    """Take a thread off its queues."""
    thread.ready = False
    for level in thread.queue.levels:
        level.threads -= 1
        level.group.runnable -= 1
    _remove(thread.queue, thread)


def unlist(queue: RunQueue) -> None:
    """Take a queue off the one above, and that off the next if it is empty now."""
    if queue.listed and queue.parent is not None:
        queue.listed = False
        _remove(queue.parent, queue)


def _remove(queue: RunQueue, entity: Thread | RunQueue) -> None:
    queue.ready.remove(entity)
    if not queue.ready:
        if queue.pool is not None:
            queue.pool.hand_back(queue)
        unlist(queue)


def pick(queue: RunQueue) -> Thread | None:
    """The next thread to run: on every level the entity with the least virtual time."""
    while queue.ready:
        ready = queue.ready
        entity = ready[0] if len(ready) == 1 else min(ready, key=_vruntime)
        queue.floor = max(queue.floor, entity.vruntime)
        if isinstance(entity, Thread):
            return entity
        queue = entity
    return None


def _vruntime(entity: Thread | RunQueue) -> int:
    return entity.vruntime


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
    found: list[Thread] = []
    for entity in queue.ready:
        found += [entity] if isinstance(entity, Thread) else waiting(entity)
    return found


def queue_on(cpu: SimulatedCPU, group: CPUGroup) -> RunQueue:
    """Return the group's queue on a CPU; made where there is none yet."""
    if group.parent is None:
        return cpu.root
    queue = group.queues.get(cpu.id)
    if queue is None:
        queue = group.queues[cpu.id] = RunQueue(group, cpu.id, queue_on(cpu, group.parent))
    return queue


# Which CPU a thread runs on.

BALANCE_INTERVAL_NS: Final = 64 * MS
"""How often busy CPUs are balanced: 4 ms of a domain of four, 16 times less often while busy."""


def cpu_for_waking(thread: Thread, idle: int) -> int:
    """Return the thread's last CPU if that is idle, else the next idle one, else its last CPU.

    `idle` is a mask of CPUs.
    """
    last = thread.queue.cpu
    idle &= thread.allowed
    if not idle or idle >> last & 1:
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
