"""Looks at the threads of containers while `limits watch` and `limits advise` wait between two readings.

A first pair of looks finds the containers with threads that wait; only these are looked at further, as often
as a budget of file reads allows.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane.app.limits.sites import Site
from corelane.cpuset import CPUSet
from corelane.kernel.cpu_time import competitors, counters, threads
from corelane.kernel.cpu_time.counters import CounterError, Processor
from corelane.kernel.cpu_time.threads import Counted, Crowd, ThreadWatch
from corelane.kernel.files import Directory

_PROBE: Final = 0.1
"""The part of the time between the first two looks."""
_READS: Final = 1500
"""Files to read a second, for all containers: about 3 % of one CPU."""
_FASTEST, _SLOWEST = 100.0, 4.0
"""Looks a second."""
_MOST: Final = 20_000
"""Threads beyond which none are looked at: even one look at all would take too long."""

Key = tuple[str, ...]


@dataclass(slots=True)
class _Watched:
    site: Site
    cpus: CPUSet | None
    watch: ThreadWatch


def wait(sites: Iterable[Site], seconds: float, root: Path) -> Mapping[Key, Crowd]:
    """Let `seconds` pass; return what the threads of sites did meanwhile, by the directories of the site."""
    end, proc = time.monotonic() + seconds, Directory(str(root / "proc"))
    watched = [each for site in sites if (each := _watched(site))]
    total = _look(watched, proc) if watched else 0
    if not total or total > _MOST:
        time.sleep(max(0.0, end - time.monotonic()))
        return {}
    time.sleep(max(0.0, min(seconds * _PROBE, end - time.monotonic())))
    _look(watched, proc)
    busy = [each for each in watched if each.watch.busy]
    reads = sum(3 + 2 * len(each.watch.present) for each in busy) + 1
    pause = 1 / max(_SLOWEST, min(_FASTEST, _READS / reads))
    while (left := end - time.monotonic()) > 0:
        # At moments that no rhythm of the load follows.
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311
        _look(busy, proc)
    found = ((each.site.directories, each.watch.crowd()) for each in watched)
    return {key: crowd for key, crowd in found if crowd}


def _watched(site: Site) -> _Watched | None:
    if not threads.ids(site.directories):
        return None
    cpus = competitors.allowed_cpus(site.directories)
    return _Watched(site, cpus, ThreadWatch(len(cpus) if cpus else os.cpu_count() or 1))


def _look(watched: Iterable[_Watched], proc: Directory) -> int:
    """Look at all; how many threads there were."""
    processors, total = counters.processors(proc.read("stat") or ""), 0
    for each in watched:
        found = threads.look(threads.ids(each.site.directories), proc)
        try:
            used, throttled = counters.used_and_throttled(each.site.directories)
        except CounterError:
            continue
        each.watch.add(Counted(time.monotonic(), used, throttled, _idle(processors, each.cpus)), found)
        total += len(found)
    return total


def _idle(processors: Mapping[int, Processor], cpus: CPUSet | None) -> float | None:
    """Idle time of the container's CPUs so far, in ms."""
    own = [each.idle for cpu, each in processors.items() if cpus is None or cpu in cpus]
    return sum(own) * 1000 / os.sysconf("SC_CLK_TCK") if own else None
