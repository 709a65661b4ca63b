"""Workloads at work: what their threads do step by step, and the clients that ask them."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from corelane.cpuset import bits
from corelane.limits.model.clock import SECOND
from corelane.limits.model.engine import System
from corelane.limits.model.histogram import Histogram
from corelane.limits.model.queues import Group
from corelane.limits.model.steps import POLL, RUN, SLEEP, SPIN, Behaviour, Channel, Gate
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    EventServer,
    Open,
    Parallel,
    Server,
    Spin,
    Workload,
)

__all__ = ["Place", "start"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload runs, by what chance, and where it writes how long its requests took."""

    system: System
    group: Group
    cpus: int
    random: Random
    latencies: Histogram
    pinned: bool = False

    def threads(self, wanted: int | None) -> int:
        return self.cpus.bit_count() if wanted is None else wanted

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


def start(workload: Workload, place: Place) -> None:
    """Start a workload's threads and its clients."""
    match workload:
        case Spin():
            place.start([_spin() for _ in range(place.threads(workload.threads))])
        case Bursts():
            _bursts(workload, place)
        case Server():
            _server(workload, place)
        case EventServer():
            _event_server(workload, place)
        case Parallel():
            _parallel(workload, place)


def _spin() -> Behaviour:
    while True:
        yield RUN, SECOND


def _bursts(workload: Bursts, place: Place) -> None:
    system, draw, add = place.system, place.draws(workload.run), place.latencies.add

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

    place.start([burst() for _ in range(place.threads(workload.threads))])


def _ask(place: Place, arrivals: Open | Closed, send: Callable[[int], None]) -> Callable[[int], None]:
    """Let clients send requests, by the moment they began; the function is to be called with it when done."""
    system, add = place.system, place.latencies.add
    if isinstance(arrivals, Open):
        rate, draw = arrivals.per_second / SECOND, place.random.expovariate

        def come(_argument: Any, _stamp: int) -> None:
            send(system.now)
            system.after(int(draw(rate)), come)

        if rate > 0:
            system.after(int(draw(rate)), come)
        return lambda began: add(system.now - began)

    think = arrivals.think_ns

    def again(_argument: Any, _stamp: int) -> None:
        send(system.now)

    def done(began: int) -> None:
        add(system.now - began)
        system.after(think, again)

    for client in range(arrivals.clients):
        system.after(client * _APART_NS, again)
    return done


_APART_NS = 20_000
"""How far apart clients start, as one that opens connections in a loop does."""


def _server(workload: Server, place: Place) -> None:
    system, draw = place.system, place.draws(workload.service)
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

    place.start([serve() for _ in range(place.threads(workload.threads))])
    done = _ask(place, workload.arrivals, lambda began: system.after(half, arrive, began))


def _event_server(workload: EventServer, place: Place) -> None:
    system, network, send_ns, warm = place.system, workload.network_ns, workload.send_ns, workload.warm
    wake, accept, handle = map(place.draws, (workload.wake, workload.accept, workload.handle))
    backlog: deque[tuple[int, int]] = deque()
    inboxes = [Channel() for _ in range(place.threads(workload.threads))]
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

    place.start([work(i) for i in range(len(inboxes))])
    done = _ask(place, workload.arrivals, lambda began: system.after(network, knock, began))


def _parallel(workload: Parallel, place: Place) -> None:
    system, random = place.system, place.random
    serial, work = place.draws(workload.serial), place.draws(workload.work)
    team = place.threads(workload.threads)
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

    place.start([lead(), *(follow() for _ in range(team - 1))])
    done = _ask(place, workload.arrivals, lambda began: arrive(began, 0))
