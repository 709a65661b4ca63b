"""What a group's threads lost, by the kernel's own record of every switch and wake-up (tracefs)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_EVENTS = ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")
_AT = rb"\[(\d+)\].*? (\d+\.\d+): "
_SWITCH = re.compile(_AT + rb"sched_switch: .*? prev_pid=(\d+) .*? prev_state=(\S+) ==> .*? next_pid=(\d+)")
_WAKEUP = re.compile(_AT + rb"sched_wakeup(?:_new)?: .*? pid=(\d+) .*?target_cpu=(\d+)")
_MIGRATION = re.compile(_AT + rb"sched_migrate_task: .*? pid=(\d+) .*?dest_cpu=(\d+)")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A thread that became runnable (`woken`), or was moved, to a CPU."""

    at: float
    cpu: int
    pid: int
    woken: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """A CPU that left one thread, still runnable or not, for another; 0 is the idle thread."""

    at: float
    cpu: int
    before: int
    after: int
    ready: bool = False


def events(trace: bytes) -> list[Arrival | Switch]:
    """Parse a trace, and add the switches from the idle thread that it lacks.

    Linux 6.18 in a virtual machine records about half of them. A thread that leaves a CPU which was idle by
    the record began to run there when it was woken on, or moved to, that CPU.
    """
    found = list[Arrival | Switch]()
    for line in trace.splitlines():
        if switch := _SWITCH.search(line):
            ready = switch[4].startswith(b"R")
            found.append(Switch(float(switch[2]), int(switch[1]), int(switch[3]), int(switch[5]), ready))
        elif wakeup := _WAKEUP.search(line):
            found.append(Arrival(float(wakeup[2]), int(wakeup[4]), int(wakeup[3]), woken=True))
        elif move := _MIGRATION.search(line):
            found.append(Arrival(float(move[2]), int(move[4]), int(move[3]), woken=False))
    return sorted([*found, *_unrecorded(found)], key=lambda event: event.at)


def _unrecorded(recorded: list[Arrival | Switch]) -> Iterator[Switch]:
    idle_since, arrived = dict[int, float](), dict[tuple[int, int], float]()
    for event in recorded:
        if isinstance(event, Arrival):
            arrived[event.cpu, event.pid] = event.at
            continue
        since = idle_since.pop(event.cpu, None)
        if since is not None and event.before:
            yield Switch(
                max(since, arrived.get((event.cpu, event.before), since)), event.cpu, 0, event.before
            )
        if not event.after:
            idle_since[event.cpu] = event.at


@contextmanager
def recording(mount: Path) -> Iterator[Path]:
    """An instance of tracing that records switches, by the monotonic clock. Skips where there is none."""
    mounted = Path("/sys/kernel/tracing")
    own = not (mounted / "instances").exists()
    if own:
        mount.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tracefs", "none", str(mount)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("tracefs cannot be mounted here")
        mounted = mount
    instance = mounted / f"instances/{mount.name}"
    try:
        instance.mkdir()
        for name, value in (("buffer_size_kb", "20000"), ("trace_clock", "mono"), ("tracing_on", "1")):
            (instance / name).write_text(value)
        for event in _EVENTS:
            (instance / f"events/sched/{event}/enable").write_text("1")
        yield instance
    finally:
        for event in _EVENTS:
            (instance / f"events/sched/{event}/enable").write_text("0")
        instance.rmdir()
        if own:
            subprocess.run(["umount", str(mount)], check=True)


@dataclass
class Truth:
    """The parts of docs/limits-causes.md without a limit, in ms a second, for threads on these CPUs."""

    tids: set[int]
    cpus: list[int]
    begin: float
    end: float
    parts: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("own", "neighbours", "scheduling"), 0.0)
    )
    running: dict[int, int] = field(default_factory=dict)
    runnable: set[int] = field(default_factory=set)
    beside: set[int] = field(default_factory=set)
    """Threads that are there on purpose."""
    foreign_s: float = 0.0
    """CPU time of all others."""

    @property
    def foreign(self) -> float:
        """What others used, in CPUs."""
        return self.foreign_s / (self.end - self.begin)

    def read(self, trace: bytes) -> dict[str, float]:
        last = self.begin
        for event in events(trace):
            at = min(event.at, self.end)
            self._pass(max(0.0, at - last))
            last = max(last, at)
            if isinstance(event, Switch):
                self._switch(event)
            elif event.woken and event.pid in self.tids:
                self.runnable.add(event.pid)
        return {name: 1000 * amount / (self.end - self.begin) for name, amount in self.parts.items()}

    def _switch(self, event: Switch) -> None:
        self.running[event.cpu] = event.after
        if event.before in self.tids and not event.ready:
            self.runnable.discard(event.before)
        if event.after in self.tids:
            self.runnable.add(event.after)

    def _pass(self, seconds: float) -> None:
        current = [self.running.get(cpu, -1) for cpu in self.cpus]
        if -1 in current:
            return
        self.foreign_s += seconds * sum(pid not in {0, *self.tids, *self.beside} for pid in current)
        count, run = len(self.runnable), sum(tid in self.tids for tid in current)
        rest = min(count, len(self.cpus)) - run
        scheduling = min(rest, current.count(0))
        self.parts["own"] += max(0, count - len(self.cpus)) * seconds
        self.parts["scheduling"] += scheduling * seconds
        self.parts["neighbours"] += (rest - scheduling) * seconds
