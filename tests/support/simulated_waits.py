"""The simulator's own truth of what held a group back, and what a reader of /proc would have seen of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from corelane.kernel.cpu_time.threads import Counted, Losses, ThreadLook, ThreadWatch, Waits, divide
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP, CPUGroup, Thread
from corelane.limits.model.simulator import Simulator

STEP = MS // 4
"""How finely the truth is integrated: a twelfth of the scheduler's turn."""
SECONDS = 2.0


@dataclass
class Seen:
    """One thread as /proc shows it: a wait is added when it ends, runtime at a tick or a switch."""

    ran_ns: int = 0
    waited_ns: int = 0
    waiting_ns: int = 0


@dataclass
class Observer:
    """Looks at every step for the truth, and now and then as `limits watch` does."""

    sim: Simulator
    group: CPUGroup
    threads: list[Thread]
    cpus: int
    seed: int
    truth: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_NAMES, 0.0))
    counted: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("others", "idle"), 0.0))
    seen: dict[int, Seen] = field(default_factory=dict)

    def run(self) -> tuple[Losses, Waits]:
        """Simulate; the truth, and what was counted. Both in ms a second."""
        random_ = random.Random(self.seed)
        self.seen = {id(thread): Seen() for thread in self.threads}
        for _ in range(400):
            self._step()
        self.truth, self.counted = dict.fromkeys(_NAMES, 0.0), dict.fromkeys(("others", "idle"), 0.0)
        watch, end, look = ThreadWatch(self.cpus), self.sim.now + round(SECONDS * SECOND), self.sim.now
        while self.sim.now < end:
            if self.sim.now >= look:
                self._look(watch)
                look += round(15 * MS * random_.uniform(0.5, 1.5))
            self._step()
        self._look(watch)
        crowd = watch.crowd()
        assert crowd is not None
        waits = Waits(
            crowd.waited,
            crowd.used,
            self.cpus,
            crowd.throttled,
            others=self.counted["others"] / SECONDS,
            idle=self.counted["idle"] / SECONDS,
            threads=len(self.threads),
            moments=crowd.moments,
            pending=crowd.pending,
        )
        return Losses(**{name: amount / SECONDS for name, amount in self.truth.items()}), waits

    def _look(self, watch: ThreadWatch) -> None:
        stat = self.group.stat()
        looks = {
            number: ThreadLook(
                thread.ready, thread.queue.cpu, self.seen[id(thread)].ran_ns, self.seen[id(thread)].waited_ns
            )
            for number, thread in enumerate(self.threads)
        }
        now = self.sim.now / SECOND
        watch.add(Counted(now, stat.usage_ns / MS, stat.throttled_ns / MS, self.counted["idle"]), looks)

    def _step(self) -> None:
        """By the definitions at the head of `kernel.cpu_time.threads`."""
        self.sim.run(self.sim.now + STEP)
        step, own = STEP / MS, set(map(id, self.threads))
        busy = [cpu for cpu in self.sim.cpus if cpu.curr is not None]
        current = {id(cpu.curr) for cpu in busy} & own
        idle = self.cpus - len(busy)
        runnable = [thread for thread in self.threads if thread.ready]
        held = sum(
            any(level.throttled for level in thread.queue.levels)
            for thread in runnable
            if id(thread) not in current
        )
        could = min(len(runnable), self.cpus)
        limit = min(could - len(current), held)
        scheduling = min(could - len(current) - limit, idle)
        self.truth["own"] += (len(runnable) - could) * step
        self.truth["limit"] += limit * step
        self.truth["scheduling"] += scheduling * step
        self.truth["neighbours"] += (could - len(current) - limit - scheduling) * step
        self.counted["others"] += (len(busy) - len(current)) * step
        self.counted["idle"] += idle * step
        for thread in self.threads:
            self._account(self.seen[id(thread)], thread, runs=id(thread) in current)

    @staticmethod
    def _account(seen: Seen, thread: Thread, *, runs: bool) -> None:
        if runs:
            seen.ran_ns += STEP
            seen.waited_ns += seen.waiting_ns
            seen.waiting_ns = 0
        elif thread.ready:
            seen.waiting_ns += STEP
        else:
            seen.waited_ns += seen.waiting_ns
            seen.waiting_ns = 0


_NAMES = ("limit", "neighbours", "own", "scheduling")


def _spin() -> Iterator[tuple[int, Any]]:
    while True:
        yield RUN, SECOND


def _pausing(random_: random.Random, run_ms: float, pause_ms: float) -> Iterator[tuple[int, Any]]:
    while True:
        yield RUN, round(random_.expovariate(1 / run_ms) * MS) + 1000
        yield SLEEP, round(random_.expovariate(1 / pause_ms) * MS) + 1000


@cache
def world(seed: int) -> tuple[Losses, Losses, dict[str, Any]]:
    """One to four CPUs, own threads and others, perhaps a limit, by the seed: the truth and the estimate."""
    random_ = random.Random(seed)
    drawn = {
        "seed": seed,
        "cpus": random_.choice([1, 1, 2, 2, 3, 4]),
        "threads": random_.randint(1, 6),
        "others": random_.choice([0, 0, 1, 2, 4]),
        "limit": random_.choice([None, 0.2, 0.5, 1.0, 1.5]),
        "shares": random_.choice([256, 512, 1024, 2048]),
        "beside": random_.choice([2, 256, 1024, 2048]),
        "pauses": random_.choice([False, True]),
        "others_pause": random_.choice([False, True]),
        "run_ms": random_.choice([1, 5, 20, 100]),
        "pause_ms": random_.choice([2, 10, 50]),
    }

    def steps(pauses: bool) -> Any:
        return _pausing(random_, drawn["run_ms"], drawn["pause_ms"]) if pauses else _spin()

    sim = Simulator(drawn["cpus"])
    limit = CFSLimit(round(drawn["limit"] * 100 * MS)) if drawn["limit"] else None
    app = sim.group("app", shares=drawn["shares"], limit=limit)
    beside = sim.group("beside", shares=drawn["beside"])
    own = [sim.thread(app, steps(drawn["pauses"]), i % drawn["cpus"]) for i in range(drawn["threads"])]
    for number in range(drawn["others"]):
        sim.thread(beside, steps(drawn["others_pause"]), number % drawn["cpus"])
    sim.run(SECOND // 2)
    truth, waits = Observer(sim, app, own, drawn["cpus"], seed).run()
    return truth, divide(waits), drawn
