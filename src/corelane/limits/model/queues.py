"""Groups, threads and run queues: who is ready on which CPU, and by what weight they take turns.

Every group has a queue on every CPU (the kernel's cfs_rq), which holds its threads there and the queues of
the groups below. A queue that is throttled is not in the queue above, so nobody in it is ever picked.
"""

from collections.abc import Callable

from corelane.limits.model.bandwidth import Account, Pool, Stat
from corelane.limits.model.steps import Behaviour, Gate

__all__ = [
    "NICE_0",
    "Group",
    "Queue",
    "Thread",
    "admit",
    "contended",
    "dequeue",
    "enqueue",
    "pick",
    "unlist",
    "waiting",
]

NICE_0 = 1024
"""The weight of a thread, and of a group with the shares of one CPU."""


class Group:
    """A control group: shares, perhaps a pool, and what it has used in ns."""

    __slots__ = ("name", "parent", "pool", "queues", "runnable", "shares", "usage_ns")

    def __init__(self, name: str, parent: "Group | None", shares: int, pool: Pool | None) -> None:
        self.name, self.parent, self.shares, self.pool = name, parent, shares, pool
        self.usage_ns = self.runnable = 0
        self.queues: dict[int, Queue] = {}

    def stat(self) -> Stat:
        return self.pool.stat(self.usage_ns) if self.pool else Stat(usage_ns=self.usage_ns)

    def lineage(self) -> list["Group"]:
        """This group and those above it, without the root, the lowest first."""
        above: list[Group] = []
        group: Group | None = self
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

    def __init__(self, number: int, group: Group, queue: "Queue", allowed: int, steps: Behaviour) -> None:
        """`allowed` is a mask of CPUs."""
        self.number, self.group, self.queue, self.allowed, self.steps = number, group, queue, allowed, steps
        self.left = self.vruntime = 0
        self.ready = self.kernel = False
        self.spinning: Gate | None = None

    def charge(self, ran_ns: int) -> None:
        self.vruntime += ran_ns


class Queue(Account):
    """A group on one CPU. `ready` holds threads and queues; `listed` says that the queue above holds this."""

    __slots__ = ("cpu", "floor", "group", "levels", "listed", "parent", "ready", "threads", "vruntime")

    def __init__(self, group: Group, cpu: int, parent: "Queue | None") -> None:
        super().__init__(group.pool)
        self.group, self.cpu, self.parent = group, cpu, parent
        self.ready: list[Thread | Queue] = []
        self.listed = False
        self.threads = self.vruntime = self.floor = 0
        self.levels: tuple[Queue, ...] = (self, *parent.levels) if parent else ()
        """This queue and those above it, but not the CPU's own."""

    def charge(self, ran_ns: int) -> None:
        """Virtual time goes the slower, the larger the part of the group's shares that counts here.

        calc_group_shares: the shares are spread over CPUs as the group's load is.
        """
        group = self.group
        self.vruntime += ran_ns * NICE_0 * group.runnable // (group.shares * (self.threads or 1))


def enqueue(thread: Thread, head_start_ns: int, throttled: Callable[[Queue], None]) -> bool:
    """Put a thread on its queues; whether it may run. `throttled` gets a queue found without runtime."""
    thread.ready = True
    for level in thread.queue.levels:
        level.threads += 1
        level.group.runnable += 1
    queue = thread.queue
    _insert(queue, thread, head_start_ns)
    return len(queue.ready) > 1 or admit(queue, head_start_ns, throttled)


def admit(queue: Queue, head_start_ns: int, throttled: Callable[[Queue], None]) -> bool:
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


def _may_run(queue: Queue, throttled: Callable[[Queue], None]) -> bool:
    """check_enqueue_throttle: the first to come asks for runtime before it runs."""
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


def _wait_above(queue: Queue) -> None:
    for above in queue.levels[1:]:
        if above.throttled and above.pool is not None:
            above.pool.waits(above, below=True)


def _insert(queue: Queue, entity: Thread | Queue, head_start_ns: int) -> None:
    """No entity comes in with more arrears than `head_start_ns` of virtual time behind who runs."""
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


def unlist(queue: Queue) -> None:
    """Take a queue off the one above, and that off the next if it is empty now."""
    if queue.listed and queue.parent is not None:
        queue.listed = False
        _remove(queue.parent, queue)


def _remove(queue: Queue, entity: Thread | Queue) -> None:
    queue.ready.remove(entity)
    if not queue.ready:
        if queue.pool is not None:
            queue.pool.hand_back(queue)
        unlist(queue)


def pick(queue: Queue) -> Thread | None:
    """The thread whose turn it is: on every level what has had the least virtual time."""
    while queue.ready:
        ready = queue.ready
        entity = ready[0] if len(ready) == 1 else min(ready, key=_vruntime)
        queue.floor = max(queue.floor, entity.vruntime)
        if isinstance(entity, Thread):
            return entity
        queue = entity
    return None


def _vruntime(entity: Thread | Queue) -> int:
    return entity.vruntime


def contended(thread: Thread) -> bool:
    """Whether anybody waits for the CPU while the thread runs."""
    queue: Queue | None = thread.queue
    while queue is not None:
        if len(queue.ready) > 1:
            return True
        queue = queue.parent
    return False


def waiting(queue: Queue) -> "list[Thread]":
    """Every thread that may be picked from a queue and those below it, the running one included."""
    found: list[Thread] = []
    for entity in queue.ready:
        found += [entity] if isinstance(entity, Thread) else waiting(entity)
    return found
