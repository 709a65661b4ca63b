"""Kinds of workload: how many threads, what they run, which requests they serve; and their threads' steps.

Times are ns of CPU time where threads run, of the clock elsewhere. A thread count of None is the number of
CPUs that the container may run on: what a runtime starts that reads the machine and not its limit.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from corelane.cpuset import bits
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.queues import POLL, RUN, SLEEP, SPIN, Behaviour, Channel, CPUGroup, Gate
from corelane.limits.model.simulator import Simulator


@dataclass(frozen=True, slots=True)
class Duration:
    """A time drawn anew each time: log-normal with a mean and the deviation of its logarithm; 0 is always."""

    mean_ns: int
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class Open:
    """Requests come whether or not earlier ones were answered, `batch` at once.

    `variation` is that of the intervals, standard deviation over mean: 1 is at random (Poisson), 0 regular;
    intervals are drawn from a gamma distribution.
    """

    per_second: float
    batch: int = 1
    variation: float = 1.0


@dataclass(frozen=True, slots=True)
class Closed:
    """Clients, each of which sends its next request after the last answer and a think time.

    `variation` is that of the think time, as in `Open`.
    """

    clients: int
    think_ns: int = 0
    variation: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests come at recorded moments, in ns from the start and in order, and again every `every_ns`."""

    moments_ns: tuple[int, ...]
    every_ns: int


Arrivals = Open | Closed | Recorded


@dataclass(frozen=True, slots=True)
class Spin:
    """Threads that never stop."""

    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Bursts:
    """Threads that run for a while, all at once, and then sleep.

    Every `every_ns` from the start if that is given, else with a pause of `pause_ns` after each. A job that
    runs each minute, a garbage collector's threads, and sleepers are such. A burst's latency is what it took.
    """

    run: Duration
    every_ns: int = 0
    pause_ns: int = 0
    threads: int | None = 1
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class ThreadPoolServer:
    """A pool of threads that takes requests from one queue."""

    service: Duration
    arrivals: Arrivals
    threads: int | None = None
    network_ns: int = 0


@dataclass(frozen=True, slots=True)
class EventServer:
    """Workers with an event loop each, as nginx: a connection per request, taken by the first free worker.

    A connection stays with the worker that has accepted it. A worker that was asleep spends `wake` before it
    looks at what woke it, but only `warm` times as much if that was for less than `warm_ns`; then `accept` on
    a connection, whose request can be read `send_ns` after it came, and `handle` on that. Each connection
    wakes one sleeping worker: the first in a fixed order (EPOLLEXCLUSIVE).
    """

    wake: Duration
    accept: Duration
    handle: Duration
    arrivals: Arrivals
    threads: int | None = None
    network_ns: int = 100 * US
    send_ns: int = 100 * US
    warm: float = 1.0
    warm_ns: int = 2 * MS


@dataclass(frozen=True, slots=True)
class Parallel:
    """Requests worked on one at a time by a team of threads, region after region, as OpenMP does.

    A request is `serial` work of one thread and `work` of all, both in `regions` equal parts by turns. At the
    end of every part a thread waits for the others and spins for `spin_ns` (GOMP_SPINCOUNT, KMP_BLOCKTIME)
    before it sleeps. `imbalance` is the largest part by which a thread's share exceeds the others', and
    `overhead_ns` what a thread spends on a region besides.
    """

    serial: Duration
    work: Duration
    regions: int
    arrivals: Arrivals
    threads: int | None = None
    spin_ns: int = 1 * MS
    imbalance: float = 0.1
    overhead_ns: int = 5 * US


_REGULAR = 0.01
"""Intervals that vary by less are equal."""

Workload = Spin | Bursts | ThreadPoolServer | EventServer | Parallel


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """A workload's group and CPUs, its source of chance, and the recorder of its latencies."""

    system: Simulator
    group: CPUGroup
    cpus: int
    random: Random
    record_latency: Callable[[int], None]
    pinned: bool = False

    def threads(self, count: int | None) -> int:
        return self.cpus.bit_count() if count is None else count

    def start(self, behaviours: list[Behaviour]) -> None:
        """Spread threads over the CPUs in turn; pinned ones stay there."""
        places = list(bits(self.cpus))
        for i, behaviour in enumerate(behaviours):
            cpu = places[i % len(places)]
            self.system.thread(self.group, behaviour, cpu, 1 << cpu if self.pinned else self.cpus)

    def draws(self, duration: Duration) -> Callable[[], int]:
        """A function that draws such durations in ns, at least 1 µs unless the mean is 0."""
        mean, sigma, draw = duration.mean_ns, duration.sigma, self.random.lognormvariate
        if not sigma or not mean:
            return lambda: mean
        location = math.log(mean) - sigma * sigma / 2
        return lambda: max(int(draw(location, sigma)), 1000)

    def intervals(self, mean_ns: float, variation: float) -> Callable[[], int]:
        """A function that draws times in ns, gamma distributed: deviation over mean is `variation`."""
        if variation < _REGULAR or not mean_ns:
            return lambda: int(mean_ns)
        if variation == 1.0:
            rate, draw = 1 / mean_ns, self.random.expovariate
            return lambda: int(draw(rate))
        shape, gamma = 1 / variation**2, self.random.gammavariate
        return lambda: int(gamma(shape, mean_ns / shape))


def start(workload: Workload, context: WorkloadContext) -> None:
    """Start a workload's threads and its clients."""
    match workload:
        case Spin():
            context.start([_spin() for _ in range(context.threads(workload.threads))])
        case Bursts():
            _bursts(workload, context)
        case ThreadPoolServer():
            _server(workload, context)
        case EventServer():
            _event_server(workload, context)
        case Parallel():
            _parallel(workload, context)


def _spin() -> Behaviour:
    while True:
        yield RUN, SECOND


def _bursts(workload: Bursts, context: WorkloadContext) -> None:
    system, draw, add = context.system, context.draws(workload.run), context.record_latency

    def burst() -> Behaviour:
        due = system.now + workload.start_ns
        if workload.start_ns:
            yield SLEEP, workload.start_ns
        while True:
            yield RUN, draw()
            add(system.now - due)
            due = max(due + workload.every_ns, system.now) if workload.every_ns else system.now
            due += workload.pause_ns
            if due > system.now:
                yield SLEEP, due - system.now

    context.start([burst() for _ in range(context.threads(workload.threads))])


def _ask(context: WorkloadContext, arrivals: Arrivals, send: Callable[[int], None]) -> Callable[[int], None]:
    """Start clients, which send requests by the moment they began; call the result with it when done."""
    system, add = context.system, context.record_latency
    if isinstance(arrivals, Recorded):
        moments, every_ns = arrivals.moments_ns, arrivals.every_ns

        def replay(number: int, _stamp: int) -> None:
            send(system.now)
            turn, place = divmod(number + 1, len(moments))
            system.after(max(turn * every_ns + moments[place] - system.now, 0), replay, number + 1)

        if moments:
            system.after(moments[0], replay, 0)
        return lambda began: add(system.now - began)
    if isinstance(arrivals, Open):
        if arrivals.per_second <= 0:
            return lambda began: add(system.now - began)
        interval = context.intervals(SECOND * arrivals.batch / arrivals.per_second, arrivals.variation)
        sizes = range(arrivals.batch)

        def come(_argument: Any, _stamp: int) -> None:
            for _ in sizes:
                send(system.now)
            system.after(interval(), come)

        system.after(interval(), come)
        return lambda began: add(system.now - began)

    think = context.intervals(arrivals.think_ns, arrivals.variation)

    def again(_argument: Any, _stamp: int) -> None:
        send(system.now)

    def done(began: int) -> None:
        add(system.now - began)
        system.after(think(), again)

    for client in range(arrivals.clients):
        system.after(client * _APART_NS, again)
    return done


_APART_NS = 20_000
"""Time between the starts of clients, as one that opens connections in a loop does."""


def _server(workload: ThreadPoolServer, context: WorkloadContext) -> None:
    system, draw = context.system, context.draws(workload.service)
    requests, half = Channel(), workload.network_ns // 2

    def arrive(began: int, _stamp: int) -> None:
        system.put(requests, began)

    def answered(began: int, _stamp: int) -> None:
        done(began)

    def serve() -> Behaviour:
        items = requests.items
        while True:
            while not items:
                yield POLL, requests
            began = items.popleft()
            yield RUN, draw()
            system.after(half, answered, began)

    context.start([serve() for _ in range(context.threads(workload.threads))])
    done = _ask(context, workload.arrivals, lambda began: system.after(half, arrive, began))


def _event_server(workload: EventServer, context: WorkloadContext) -> None:
    system, network, send_ns, warm = context.system, workload.network_ns, workload.send_ns, workload.warm
    wake, accept, handle = map(context.draws, (workload.wake, workload.accept, workload.handle))
    backlog: deque[tuple[int, int]] = deque()
    inboxes = [Channel() for _ in range(context.threads(workload.threads))]
    asleep = 0

    def rouse(worker: int, why: int | None) -> None:
        nonlocal asleep
        asleep &= ~(1 << worker)
        system.put(inboxes[worker], why)

    def knock(began: int, _stamp: int) -> None:
        backlog.append((began, system.now + send_ns))
        if asleep:
            rouse((asleep & -asleep).bit_length() - 1, None)

    def readable(what: tuple[int, int], _stamp: int) -> None:
        rouse(*what)

    def answered(began: int, _stamp: int) -> None:
        done(began)

    def work(worker: int) -> Behaviour:
        nonlocal asleep
        inbox = inboxes[worker].items
        while True:
            if not inbox and not backlog:
                asleep |= 1 << worker
                since = system.now
                yield POLL, inboxes[worker]
                yield RUN, int(wake() * (warm if system.now - since < workload.warm_ns else 1))
            if backlog:
                began, sent = backlog.popleft()
                yield RUN, accept()
                if sent <= system.now:
                    inbox.append(began)
                else:
                    system.clock.at(sent, readable, (worker, began))
            for _ in range(len(inbox)):
                began = inbox.popleft()
                if began is not None:
                    yield RUN, handle()
                    system.after(network, answered, began)

    context.start([work(i) for i in range(len(inboxes))])
    done = _ask(context, workload.arrivals, lambda began: system.after(network, knock, began))


def _parallel(workload: Parallel, context: WorkloadContext) -> None:
    system, random = context.system, context.random
    serial, work = context.draws(workload.serial), context.draws(workload.work)
    team = context.threads(workload.threads)
    requests, begin, end = Channel(), Gate(workload.spin_ns), Gate(workload.spin_ns)
    busy, share = 0, 0

    def part() -> int:
        return int(share * (1 + workload.imbalance * random.random())) + workload.overhead_ns

    def arrive(began: int, _stamp: int) -> None:
        system.put(requests, began)

    def lead() -> Behaviour:
        nonlocal busy, share
        while True:
            while not requests.items:
                yield POLL, requests
            began = requests.items.popleft()
            alone = serial() // workload.regions
            share = work() // (workload.regions * team)
            for _ in range(workload.regions):
                yield RUN, alone
                busy = team
                system.open(begin)
                yield RUN, part()
                busy -= 1
                if busy:
                    yield SPIN, end
            done(began)

    def follow() -> Behaviour:
        nonlocal busy
        while True:
            yield SPIN, begin
            yield RUN, part()
            busy -= 1
            if not busy:
                system.open(end)

    context.start([lead(), *(follow() for _ in range(team - 1))])
    done = _ask(context, workload.arrivals, lambda began: arrive(began, 0))
