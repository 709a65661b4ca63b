"""A service as a small program: workers that burn CPU time on request, and clients that time every request.

Workers are processes, one thread each (no interpreter lock between them); they count until their own CPU time
has grown by the work of a request, and read that a few times only: in each reading the kernel settles the
group's account. Clients run outside the workers' cgroup. `python advice_load.py` reads a
`Load` as JSON from stdin, forks the workers, prints their pids, waits for a line, serves for `seconds`, and
prints `{"latencies": [[sent, ms], …]}`: seconds since the begin, and for requests without an answer at the
end the time that they have waited so far.
"""

# ruff: noqa: T201
import ctypes
import heapq
import json
import math
import os
import random
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_MESSAGE: Final = struct.Struct("<qq")
_NEVER: Final = 1 << 62
_PART: Final = 0.8
_LEAST_COUNT: Final = 200
_TRIALS, _TRIAL = 20, 20_000


@dataclass(frozen=True, slots=True)
class Load:
    """What is served. Times in ms, `seed` of every random choice.

    `kind`: `open` (Poisson), `closed` (`clients` that think), `batch` (`batch` requests at once, on average),
    `gc` (open, and `gc_ms` of each of `gc_threads` about every `gc_every_ms`), `parallel` and
    `parallel-closed` (requests one at a time, each divided among all workers), `spin`.
    """

    kind: str
    workers: int
    seed: int
    service_ms: float = 0.0
    sigma: float = 0.0
    per_second: float = 0.0
    clients: int = 0
    think_ms: float = 0.0
    batch: int = 1
    gc_ms: float = 0.0
    gc_threads: int = 0
    gc_every_ms: float = 0.0
    seconds: float = 5.0
    cpus: tuple[int, ...] = ()


# Workers.


def _worker(read: int, write: int, per_ns: float) -> None:
    """Serve until the pipe ends: a message is a request's number and its work in ns of CPU time."""
    while message := os.read(read, _MESSAGE.size):
        number, work = _MESSAGE.unpack(message)
        _use(work, per_ns)
        os.write(write, _MESSAGE.pack(number, time.monotonic_ns()))


def _use(work_ns: int, per_ns: float) -> None:
    """Count for most of what is left again and again."""
    used = time.thread_time_ns
    until = used() + work_ns
    while (left := until - used()) > 0:
        _count(max(int(_PART * left * per_ns), _LEAST_COUNT))


def _count(number: int) -> None:
    for _ in range(number):
        pass


def _counted_per_ns() -> float:
    """How far this machine counts in a ns of CPU time, when nothing slows it down."""
    best = 0.0
    for _ in range(_TRIALS):
        begin = time.thread_time_ns()
        _count(_TRIAL)
        best = max(best, _TRIAL / (time.thread_time_ns() - begin))
    return best


def _spinner() -> None:
    while True:
        pass


class Workers:
    """Forked processes. `shared` is a queue that all of them serve; else each has a queue of its own."""

    def __init__(self, count: int, cpus: tuple[int, ...], *, shared: bool) -> None:
        self.pids: list[int] = []
        per_ns = _counted_per_ns()
        self.results, write = os.pipe()
        pipes = [os.pipe() for _ in range(1 if shared else count)]
        self._queues = [end for _, end in pipes]
        for number in range(count):
            read = pipes[0 if shared else number][0]
            pid = os.fork()
            if not pid:
                _begin_child(cpus)
                for _, end in pipes:
                    os.close(end)
                _worker(read, write, per_ns)
                os._exit(0)
            self.pids.append(pid)

    def send(self, number: int, work_ns: int, queue: int = 0) -> None:
        os.write(self._queues[queue], _MESSAGE.pack(number, max(work_ns, 1000)))

    def send_all(self, number: int, work_ns: int) -> None:
        for queue in range(len(self._queues)):
            self.send(number, work_ns, queue)


def _begin_child(cpus: tuple[int, ...]) -> None:
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: nothing spins on without its parent
    if cpus:
        os.sched_setaffinity(0, set(cpus))


# Clients.


class Clients:
    """Send requests when they are due, and note when the answers came."""

    def __init__(self, load: Load, workers: Workers, gc: Workers | None) -> None:
        self._load, self._workers, self._gc = load, workers, gc
        self._random = random.Random(load.seed)  # noqa: S311 - has to be reproducible
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._sent: dict[int, int] = {}
        self._missing: dict[int, int] = {}
        self._waiting: list[tuple[int, int]] = []
        self._latencies: list[tuple[int, int]] = []
        self._numbers = self._order = 0

    def run(self) -> list[tuple[float, float]]:
        begin = time.monotonic_ns()
        end = begin + int(self._load.seconds * 1e9)
        self._start(begin)
        while (now := time.monotonic_ns()) < end:
            while self._due and self._due[0][0] <= now:
                at, _, call = heapq.heappop(self._due)
                call(at)
            until = min(self._due[0][0] if self._due else _NEVER, end)
            wait = max(until - time.monotonic_ns(), 0) / 1e9
            if select.select([self._workers.results], [], [], wait)[0]:
                self._receive()
        waiting = [*self._sent.values(), *(at for at, _ in self._waiting)]
        self._latencies += [(at, end - at) for at in waiting]
        return [((at - begin) / 1e9, took / 1e6) for at, took in sorted(self._latencies)]

    def _at(self, moment: float, call: Callable[[int], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (int(moment), self._order, call))

    def _start(self, begin: int) -> None:
        load = self._load
        if "closed" in load.kind:
            for client in range(load.clients):
                self._at(begin + self._random.random() * (load.think_ms + 1) * 1e6 + client, self._request)
        elif load.kind != "spin":
            self._at(begin + self._gap(), self._arrive)
        if self._gc:
            self._at(begin + self._random.random() * load.gc_every_ms * 1e6, self._collect)

    def _gap(self) -> float:
        """Time to the next arrival in ns: Poisson, or for batches an interval that varies by 40 %."""
        load = self._load
        if load.kind == "batch":
            return 1e9 * load.batch / load.per_second * self._random.uniform(0.6, 1.4)
        return 1e9 * self._random.expovariate(load.per_second)

    def _arrive(self, at: int) -> None:
        load = self._load
        count = 1
        if load.kind == "batch":
            count = self._random.randint(max(load.batch // 2, 1), 2 * load.batch - max(load.batch // 2, 1))
        for _ in range(count):
            self._request(at)
        self._at(at + self._gap(), self._arrive)

    def _collect(self, at: int) -> None:
        assert self._gc is not None
        self._gc.send_all(0, int(self._load.gc_ms * 1e6))
        self._at(at + self._load.gc_every_ms * 1e6 * self._random.uniform(0.8, 1.2), self._collect)

    def _request(self, at: int) -> None:
        load = self._load
        work = load.service_ms * 1e6
        if load.sigma:
            work *= self._random.lognormvariate(-load.sigma * load.sigma / 2, load.sigma)
        if load.kind.startswith("parallel"):
            self._waiting.append((at, int(work)))
            self._divide()
            return
        self._numbers += 1
        self._sent[self._numbers] = at
        self._workers.send(self._numbers, int(work))

    def _divide(self) -> None:
        """Give the next request to all workers once the last one is finished."""
        if self._missing or not self._waiting:
            return
        at, work = self._waiting.pop(0)
        self._numbers += 1
        self._sent[self._numbers] = at
        self._missing[self._numbers] = self._load.workers
        self._workers.send_all(self._numbers, work // self._load.workers)

    def _receive(self) -> None:
        data = os.read(self._workers.results, _MESSAGE.size * 256)
        for number, done in _MESSAGE.iter_unpack(data):
            if number in self._missing:
                self._missing[number] -= 1
                if self._missing[number]:
                    continue
                del self._missing[number]
            at = self._sent.pop(number)
            self._latencies.append((at, done - at))
            if "closed" in self._load.kind:
                self._again(done)
            if self._load.kind.startswith("parallel"):
                self._divide()

    def _again(self, done: int) -> None:
        """A client thinks (exponential), then asks again."""
        think = self._load.think_ms * 1e6
        self._at(done + (think and self._random.expovariate(1 / think)), self._request)


def percentile(values: list[float], percent: float) -> float:
    """Nearest rank. Raises IndexError without values."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def _spinners(load: Load) -> Iterator[int]:
    for number in range(load.workers):
        pid = os.fork()
        if not pid:
            _begin_child((load.cpus[number % len(load.cpus)],) if load.cpus else ())
            _spinner()
        yield pid


def main() -> int:
    load = Load(**json.loads(sys.stdin.readline()))
    load_cpus = tuple(load.cpus)
    if load.kind == "spin":
        print(json.dumps(list(_spinners(load))), flush=True)
        sys.stdin.readline()
        return 0
    gc = Workers(load.gc_threads, load_cpus, shared=False) if load.gc_threads else None
    workers = Workers(load.workers, load_cpus, shared=not load.kind.startswith("parallel"))
    print(json.dumps([*workers.pids, *(gc.pids if gc else ())]), flush=True)
    if not sys.stdin.readline():
        return 1
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print(json.dumps({"latencies": Clients(load, workers, gc).run()}), flush=True)
    sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
