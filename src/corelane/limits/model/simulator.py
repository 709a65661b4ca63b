"""The machine: CPUs with ticks, threads that run step by step, and the pools that hold them back.

Nothing happens between events, so a CPU is looked at only when its thread's step ends, when a tick finds an
account empty or a turn over, or when a thread arrives or is released. A tick of 0 enforces limits to the ns.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from corelane.limits.model import queues
from corelane.limits.model.bandwidth import LATEST, Account, BandwidthPool, CFSLimit, Switches
from corelane.limits.model.clock import MS, NEVER, Clock
from corelane.limits.model.queues import (
    FULL_SPEED,
    KERNEL,
    POLL,
    SLEEP,
    Behaviour,
    Channel,
    CPUGroup,
    Gate,
    RunQueue,
    SimulatedCPU,
    Thread,
    queue_on,
    waiting,
)
from corelane.limits.model.timeline import TimelineRecorder
from corelane.limits.model.turns import NICE_0, Turns

# Which CPU a thread runs on: what select_idle_sibling, newidle and periodic balancing do.
#
# A CPU on which only throttled queues are left counts as idle, as it does in the kernel.


BALANCE_INTERVAL_NS: Final = 64 * MS
"""Interval at which busy CPUs are balanced: 4 ms of a domain of four, 16 times less often while busy."""


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


class Simulator:
    """CPUs, groups and threads over simulated time."""

    def __init__(
        self,
        cpus: int,
        switches: Switches = LATEST,
        *,
        tick_ns: int = 4 * MS,
        tick_phases: Callable[[int], int] = lambda _cpu: 0,
        smt_speed: int | None = None,
        waker: int | None = None,
        weighted: bool = True,
        tracer: TimelineRecorder | None = None,
    ) -> None:
        """An idle machine.

        `tick_phases` says when a CPU ticks, in ns after 0; `smt_speed`, in thousandths, how fast either of
        two siblings is while both run, where CPUs 2k and 2k + 1 are siblings; `waker` the CPU on which
        threads wake that find no idle one (None: their last). Without `weighted` no group has others beside
        it.
        """
        self.clock = Clock()
        self.switches, self.tick_ns, self.tracer = switches, tick_ns, tracer
        self.root = CPUGroup("", None, NICE_0, None, self.clock)
        self.cpus = [SimulatedCPU(i, RunQueue(self.root, i, None), tick_phases(i)) for i in range(cpus)]
        self.smt_speed, self.waker = smt_speed or FULL_SPEED, waker
        if smt_speed:
            for cpu in self.cpus:
                cpu.sibling = self.cpus[cpu.id ^ 1] if cpu.id ^ 1 < cpus else None
        self.all = self.idle = (1 << cpus) - 1
        self.crowded = 0
        """CPUs, as a mask, on which threads wait to run."""
        self.turn_ns = switches.base_slice_ns * (1 + min(cpus, 8).bit_length() - 1)
        self.turns = Turns(switches.eevdf, self.turn_ns, 0 if switches.eevdf else 3 * MS, tick_ns, weighted)
        self.movable = False
        self._groups: dict[BandwidthPool, CPUGroup] = {}
        self._made = 0
        self._balancing = False

    # Building.

    def group(
        self,
        name: str,
        parent: CPUGroup | None = None,
        *,
        shares: int = NICE_0,
        limit: CFSLimit | None = None,
        phase_ns: int = 0,
    ) -> CPUGroup:
        """A group below another or the root. Raises ValueError for a limit that the kernel refuses."""
        pool = BandwidthPool(self.clock, limit, self.switches, self, phase_ns) if limit else None
        group = CPUGroup(name, parent or self.root, shares, pool, self.clock)
        if pool:
            self._groups[pool] = group
        return group

    def thread(self, group: CPUGroup, steps: Behaviour, cpu: int, allowed: int = -1) -> Thread:
        """A thread that starts now on `cpu` and may run on the CPUs of the mask `allowed`: all, as a rule."""
        thread = Thread(self._made, group, queue_on(self.cpus[cpu], group), allowed & self.all, steps)
        self._made += 1
        self.movable = self.movable or thread.allowed.bit_count() > 1
        self._wake_on(thread, self.cpus[cpu])
        return thread

    # For behaviours and clients.

    @property
    def now(self) -> int:
        return self.clock.now

    def after(self, delay_ns: int, call: Callable[[Any, int], None], argument: Any = None) -> None:
        self.clock.at(self.clock.now + delay_ns, call, argument)

    def put(self, channel: Channel, item: Any) -> None:
        """Add an item, and wake a thread that waits for it."""
        channel.items.append(item)
        if channel.sleepers:
            self._wake(channel.sleepers.popleft())

    def open(self, gate: Gate) -> None:
        """Let all threads pass that wait at the gate now."""
        spinners, sleepers = gate.spinners, gate.sleepers
        gate.spinners, gate.sleepers = [], []
        for thread in sleepers:
            self._wake(thread)
        for thread in spinners:
            cpu = self.cpus[thread.queue.cpu]
            self._settle(cpu)
            thread.spinning, thread.left = None, 0
            if cpu.curr is thread:
                self._kick(cpu)

    def run(self, until_ns: int) -> None:
        """Let time pass; what runs at the end is charged up to then."""
        self.clock.run(until_ns)
        for cpu in self.cpus:
            self._settle(cpu)

    # Threads come and go.

    def _goes_on(self, thread: Thread) -> bool:
        """Take the behaviour's next steps; whether the thread wants to run, not to wait or to end."""
        if thread.spinning is not None:
            gate, thread.spinning = thread.spinning, None
            gate.fall_asleep(thread)
            return False
        for kind, what in thread.steps:
            if kind <= KERNEL:
                if what > 0:
                    thread.left, thread.kernel = what, kind == KERNEL
                    return True
            elif kind == POLL:
                if not what.items:
                    what.sleepers.append(thread)
                    return False
            elif kind == SLEEP:
                self.clock.at(self.clock.now + what, lambda sleeper, _stamp: self._wake(sleeper), thread)
                return False
            else:
                if what.wait(thread):
                    thread.spinning, thread.left, thread.kernel = what, what.patience_ns, False
                return thread.spinning is what
        return False

    def _wake(self, thread: Thread) -> None:
        cpu = self.cpus[cpu_for_waking(thread, self.idle, self.waker)]
        if thread.queue.cpu != cpu.id:
            self._move(thread, cpu)
        self._wake_on(thread, cpu)

    def _wake_on(self, thread: Thread, cpu: SimulatedCPU) -> None:
        self._settle(cpu)
        thread.left = 0
        if queues.enqueue(thread, self.turns, self._throttle):
            self._kick(cpu)

    def _move(self, thread: Thread, cpu: SimulatedCPU) -> None:
        """Take a thread that is on no queue to another CPU; what it is ahead or behind goes with it."""
        queues.move(thread, queue_on(cpu, thread.group), self.turns)

    def _migrate(self, thread: Thread, cpu: SimulatedCPU) -> None:
        """Take a thread that waits for its turn to another CPU."""
        self._kick(self.cpus[thread.queue.cpu])
        queues.dequeue(thread, self.turns)
        self._move(thread, cpu)
        self._settle(cpu)
        if queues.enqueue(thread, self.turns, self._throttle):
            self._kick(cpu)

    def _kick(self, cpu: SimulatedCPU) -> None:
        """Have a CPU reschedule at this moment, after the current event."""
        self.idle &= ~cpu.bit
        if not cpu.kicked:
            cpu.kicked = True
            self.clock.at(self.clock.now, self._look, cpu)

    # CPUs.

    def _look(self, cpu: SimulatedCPU, _stamp: int) -> None:
        cpu.kicked = False
        self._settle(cpu)
        thread = cpu.curr
        newcomer = thread is not None and queues.contended(thread)
        self._schedule(cpu, turn_over=newcomer)

    def _event(self, cpu: SimulatedCPU, stamp: int) -> None:
        """The running thread's step ends, or a tick comes that matters.

        Between ticks the kernel looks at the quota where a thread sleeps, or returns to user mode while its
        group is throttled; from one piece of work to the next it sees no difference.
        """
        thread = cpu.curr
        if stamp != cpu.stamp or thread is None:
            return
        ticks = cpu.ticks(self.tick_ns, self.clock.now)
        self._settle(cpu, noticed=ticks)
        if thread.left <= 0 and not self._goes_on(thread):
            queues.notice(thread)
            queues.dequeue(thread, self.turns)
        elif not ticks and not any(queue.throttled for queue in thread.queue.levels):
            self._arm(cpu)
            return
        over = cpu.over if self.switches.eevdf else self.clock.now - cpu.picked >= self.turn_ns
        self._schedule(cpu, turn_over=over and bool(self.crowded & cpu.bit))

    def _settle(self, cpu: SimulatedCPU, *, noticed: bool = True) -> None:
        """Charge the running thread, its group and those above for the time since the last settlement.

        What is not `noticed` comes off the runtime at hand, but nobody asks the pool for more.
        The lag of who sleeps is kept from 6.6 on (PLACE_LAG): virtual time stands while nobody waits. Before,
        it ran on, and sleepers lost what they were ahead (place_entity).
        """
        thread, now = cpu.curr, self.clock.now
        ran = now - cpu.settled
        if thread is None or not (ran or self.switches.expiry):
            return
        cpu.settled = now
        thread.left -= ran if cpu.speed == FULL_SPEED else ran * cpu.speed // FULL_SPEED
        turns, eevdf = self.turns, self.switches.eevdf
        entity: Thread | RunQueue = thread
        queue: RunQueue | None = thread.queue
        while queue is not None:
            if len(queue.ready) > 1:
                turns.charge(entity, ran)
                if turns.weighted and isinstance(entity, RunQueue):
                    entity.reweigh(turns)
                if eevdf and noticed and turns.ends(entity):
                    cpu.over = True
            elif not eevdf:
                turns.charge(entity, ran)
                queue.floor = max(queue.floor, entity.vruntime)
            elif turns.weighted and queue.parent is not None and isinstance(entity, RunQueue):
                entity.reweigh(turns)
            queue.group.usage_ns += ran
            if queue.pool is not None:
                if queue.throttled or not noticed:
                    queue.remaining -= ran
                else:
                    queue.pool.settle(queue, ran)
            entity, queue = queue, queue.parent

    def _schedule(self, cpu: SimulatedCPU, *, turn_over: bool) -> None:
        """Hold back what has no runtime, pick who runs, and plan the next event."""
        thread = cpu.curr
        if thread is None or self._held_back(thread) or not thread.ready or turn_over:
            self._pick(cpu)
        self._arm(cpu)

    def _held_back(self, thread: Thread) -> bool:
        """Throttle every level that could not get runtime; whether the thread must leave the CPU."""
        inside = thread.kernel and thread.left > 0 and self.switches.task_throttling
        held = False
        for queue in thread.queue.levels:
            if queue.pool is None:
                continue
            if not queue.throttled and queue.remaining <= 0 and not queue.pool.request(queue, 1):
                self._throttle(queue, holds_tasks=len(queue.ready) > inside)
            if queue.throttled:
                held = True
                if thread.ready and not inside:
                    queue.pool.waits(queue, below=not queue.ready)
        return held and not inside

    def _throttle(self, queue: RunQueue, *, holds_tasks: bool = True) -> None:
        assert queue.pool is not None
        queue.pool.throttle(queue, holds_tasks=holds_tasks)
        queue.stop_load()
        queues.unlist(queue, self.turns)

    def _pick(self, cpu: SimulatedCPU) -> None:
        """Switch to the next thread with work to run, not one that would only wait again."""
        while True:
            thread = queues.pick(cpu.root, self.turns, cpu.curr)
            if thread is not cpu.curr:
                self._switch(cpu, thread)
            cpu.picked, cpu.over = self.clock.now, False
            if thread is None:
                pulled = None
                if self.movable and self.crowded:
                    pulled = thread_to_pull(self.cpus, self.crowded, cpu)
                if not pulled:
                    return
                self._migrate(pulled, cpu)
            elif thread.left > 0 or self._goes_on(thread):
                return
            else:
                queues.dequeue(thread, self.turns)

    def _switch(self, cpu: SimulatedCPU, thread: Thread | None) -> None:
        now = self.clock.now
        if self.tracer and cpu.curr is not None and now > cpu.began:
            self.tracer.ran(cpu.id, cpu.curr, cpu.began, now)
        cpu.curr, cpu.began, cpu.settled = thread, now, now

    def _arm(self, cpu: SimulatedCPU) -> None:
        """Plan the next event: the step's end, or the tick at which an account is empty or the turn over."""
        cpu.stamp += 1
        thread = cpu.curr
        if cpu.sibling is not None:
            sibling = cpu.sibling  # two that both run are slower than one
            speed = FULL_SPEED if cpu.curr is None or sibling.curr is None else self.smt_speed
            cpu.speed = speed
            if sibling.speed != speed:
                self._settle(sibling)
                sibling.speed = speed
                if sibling.curr is not None:
                    self._kick(sibling)
        if thread is None:
            self.idle |= cpu.bit
            self.crowded &= ~cpu.bit
            return
        now, end = self.clock.now, cpu.step_end(thread)
        stop = self._turn_end(cpu, thread)
        for queue in thread.queue.levels:
            pool = queue.pool
            if pool is not None and not queue.throttled:
                stop = min(stop, now if pool.expired(queue) else cpu.settled + queue.remaining)
        if stop < end:
            end = min(end, cpu.tick(self.tick_ns, stop, now))
        self.clock.at(max(end, now), self._event, cpu, cpu.stamp)

    def _turn_end(self, cpu: SimulatedCPU, thread: Thread) -> int:
        if not queues.contended(thread):
            self.crowded &= ~cpu.bit
            return NEVER
        self.crowded |= cpu.bit
        if self.movable and not self._balancing:
            self._balancing = True
            self.after(BALANCE_INTERVAL_NS, self._rebalance)
        if not self.switches.eevdf:
            return cpu.picked + self.turn_ns
        if cpu.over:
            return self.clock.now
        return cpu.settled + queues.turn_left_ns(thread, self.turns)

    def _rebalance(self, _argument: object, _stamp: int) -> None:
        self._balancing = False
        if self.crowded:
            for thread, cpu in balancing_moves(self.cpus):
                self._migrate(thread, cpu)

    # Events of pools.

    def released(self, account: Account) -> None:
        assert isinstance(account, RunQueue)
        account.resume_load()
        if self.tracer and account.since is not None:
            self.tracer.throttled(account.cpu, account.group, account.since, self.clock.now)
        if not account.ready:
            return
        # What ran alone until now is not charged as if the released group had waited.
        self._settle(self.cpus[account.cpu])
        if queues.admit(account, self.turns, self._throttle):
            self._kick(self.cpus[account.cpu])

    def refilled(self, pool: BandwidthPool) -> None:
        if self.tracer:
            self.tracer.refilled(self._groups[pool], self.clock.now)
        if self.switches.expiry:
            for cpu in self.cpus:
                if cpu.curr is not None:
                    self._arm(cpu)

    def close(self) -> None:
        """Record what still runs, or is throttled, now."""
        if self.tracer is None:
            return
        for cpu in self.cpus:
            self._switch(cpu, cpu.curr)
        for pool, group in self._groups.items():
            for account in pool.throttled:
                assert isinstance(account, RunQueue)
                if account.since is not None:
                    self.tracer.throttled(account.cpu, group, account.since, self.clock.now)
