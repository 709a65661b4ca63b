"""Where advice takes its measurements from: this node's cgroups, Prometheus, a file that watch wrote."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

from corelane.app.limits import advise_latency, advise_record, prometheus_series, sites
from corelane.app.limits.prometheus import Server
from corelane.app.limits.sites import Site, Where
from corelane.app.up import datadir
from corelane.cpuset import CPUSet
from corelane.kernel import cfs
from corelane.kernel.files import Directory
from corelane.limits import measure
from corelane.limits.advice import Latency, Slot
from corelane.limits.measure import (
    CounterError,
    Counters,
    Processor,
    Rates,
    Reading,
    Surroundings,
    Unusable,
    processors,
)

__all__ = ["Measured", "Node", "Prometheus", "Record", "Source"]

_PERIOD: Final = 0.1
_FASTEST: Final = 0.02
"""Seconds between readings: more of them would cost what is being measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One container's rates, or why there are none. `cpus` is on how many it may run, 0 where unknown."""

    namespace: str
    pod: str
    container: str
    rates: Rates | Unusable
    node: str = ""
    id: str = ""
    cpus: int = 0
    slots: tuple[Slot, ...] = ()
    notes: tuple[str, ...] = ()
    around: Surroundings | None = None
    waited: float = 0.0

    @property
    def pod_key(self) -> tuple[str, str]:
        return self.namespace or "default", self.pod


class Source(Protocol):
    """Where measurements come from."""

    def measure(self, wanted: Callable[[str, str], bool]) -> tuple[list[Measured], list[str]]:
        """Containers of pods (namespace, name) that are wanted, and what is to be said of the data."""

    @property
    def cluster(self) -> Path | None:
        """The kubeconfig of the cluster that is measured, where there is one beside the data."""

    @property
    def local_milli(self) -> int:
        """CPUs of the node that is measured, 0 for others."""

    @property
    def weight(self) -> Callable[[int], int]:
        """How requests become weights there."""


@dataclass(slots=True)
class Node:
    """This node's cgroups, read twice, or once in every period."""

    where: Where
    seconds: float
    every_period: bool = False

    @property
    def cluster(self) -> Path | None:
        return None if self.where.groups else (self.where.data_dir or datadir.default()) / "kubeconfig"

    @property
    def local_milli(self) -> int:
        return 1000 * (os.cpu_count() or 0)

    @property
    def weight(self) -> Callable[[int], int]:
        unified = (self.where.root / "sys/fs/cgroup/cgroup.controllers").exists()
        return cfs.pod_weight if unified else int

    def measure(self, wanted: Callable[[str, str], bool]) -> tuple[list[Measured], list[str]]:
        found = sites.find(self.where)
        chosen = [one for one in found.sites if self.where.groups or wanted(one.namespace, one.pod) or one.id]
        notes = [*found.notes]
        rounds, stats, began = [self._read(chosen, notes)], [self._processors()], time.monotonic()
        pause = _shortest(rounds[0].values()) if self.every_period else self.seconds
        for _ in range(max(1, round(self.seconds / pause))):
            time.sleep(pause)
            rounds.append(self._read(chosen, notes))
        stats.append(self._processors())
        during = _During(stats[0], stats[1], time.monotonic() - began)
        made = [
            one
            for site in chosen
            if (one := _measured(site, [each.get(site.key) for each in rounds], during))
        ]
        if gone := sum(each is None for each in (rounds[-1].get(site.key) for site in chosen)):
            notes.append(f"{gone} ended while being measured")
        return made, list(dict.fromkeys(notes))

    def _processors(self) -> dict[int, Processor]:
        return processors.parse(Directory(str(self.where.root / "proc")).read("stat") or "")

    def _read(self, sites: Sequence[Site], notes: list[str]) -> dict[tuple[str, ...], Reading]:
        found = {}
        for site in sites:
            try:
                reading = measure.read(site.directories, time.monotonic(), str(self.where.root / "proc"))
            except CounterError as error:
                notes.append(f"{site.directories[0]}: {error}")
                continue
            if reading is not None:
                found[site.key] = reading
        return found


def _shortest(readings: Iterable[Reading]) -> float:
    """The shortest period of those that have a limit, in seconds; at most the usual one."""
    limits = [one.counters.quota for one in readings]
    periods = [one.period_us / 1e6 for one in limits if one.quota_us is not None]
    return max(min([_PERIOD, *periods]), _FASTEST)


@dataclass(frozen=True, slots=True)
class _During:
    """What the node's CPUs counted before and after."""

    before: Mapping[int, Processor]
    after: Mapping[int, Processor]
    seconds: float

    def around(self, cpus: CPUSet | None) -> Surroundings | None:
        ticks = os.sysconf("SC_CLK_TCK")
        return processors.around(self.before, self.after, cpus, self.seconds, ticks)


def _measured(site: Site, readings: Sequence[Reading | None], during: _During) -> Measured | None:
    """Between the first reading and the last; a container that was not there all the time is left out."""
    first, last = readings[0], readings[-1]
    if first is None or last is None:
        return None
    counted = [one.counters for one in readings if one]
    rates = measure.between(first.counters, last.counters)
    if not site.container and (isinstance(rates, Unusable) or not rates.throttled):
        return None
    cpus = measure.allowed(site.directories)
    return Measured(
        site.namespace,
        site.pod,
        site.container,
        rates,
        id=site.id,
        cpus=len(cpus) if cpus else os.cpu_count() or 0,
        slots=_slots(counted) if len(counted) > 2 else (),
        notes=last.lacks,
        around=during.around(cpus),
    )


def _slots(counted: Sequence[Counters]) -> tuple[Slot, ...]:
    found = []
    for before, after in pairwise(counted):
        rates = measure.between(before, after)
        if isinstance(rates, Unusable):
            return ()
        found.append(
            Slot(rates.seconds, (rates.used or 0.0) * rates.seconds, (rates.throttled or 0.0) * rates.seconds)
        )
    return tuple(found)


@dataclass(slots=True)
class Prometheus:
    """A cluster's containers over a window that ends now."""

    server: Server
    window: str
    cluster: Path | None = None
    local_milli: int = 0

    @property
    def weight(self) -> Callable[[int], int]:
        return cfs.pod_weight

    def measure(self, wanted: Callable[[str, str], bool]) -> tuple[list[Measured], list[str]]:
        found, notes = prometheus_series.measure(self.server, self.window)
        made = [
            Measured(who.namespace, who.pod, who.container, one.rates, who.node)
            for one in found
            if wanted((who := one.watched).namespace, who.pod)
        ]
        return made, notes

    def latency(self, query: str) -> Latency:
        """Percentiles of a histogram's buckets. Raises AdviseError."""
        return advise_latency.of_buckets(prometheus_series.vector(self.server, query), query)


@dataclass(slots=True)
class Record:
    """A file that `limits watch -o json` wrote."""

    path: Path
    cluster: Path | None = None
    local_milli: int = 0

    @property
    def weight(self) -> Callable[[int], int]:
        return cfs.pod_weight

    def measure(self, wanted: Callable[[str, str], bool]) -> tuple[list[Measured], list[str]]:
        found = advise_record.read(self.path)
        made = [
            Measured(
                one.namespace,
                one.pod,
                one.container,
                one.rates,
                one.node,
                slots=one.slots,
                waited=one.waited,
            )
            for one in found
        ]
        return made, []
