"""What `corelane limits watch` does: reads counters again and again, and shows what happened between."""

from __future__ import annotations

import datetime
import fnmatch
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from corelane.app.limits import prometheus_series, sites
from corelane.app.limits.prometheus import PrometheusError, Server, bearer
from corelane.app.limits.prometheus_series import Measured
from corelane.app.limits.sites import Site, Sites, Where
from corelane.kernel.files import Directory
from corelane.limits import measure
from corelane.limits.measure import CounterError, Processor, Reading, Surroundings, Unusable, processors
from corelane.view import limits_watch as view
from corelane.view import tables
from corelane.view.limits_watch import Row

__all__ = ["Found", "Node", "Options", "Prometheus", "Server", "Source", "Where", "bearer", "main"]

_PERIODS: Final = 5
"""A rate over fewer periods than this says little."""
_CLEAR: Final = "\x1b[H\x1b[2J"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How it is shown. `rounds` 0 goes on until interrupted; `seconds` is between readings."""

    seconds: float
    rounds: int
    form: str
    sort: str
    namespace: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One round: rows and notes, and over how many seconds."""

    rows: list[Row]
    notes: tuple[str, ...]
    seconds: float


class Source(Protocol):
    """Where rows come from."""

    def rows(self, options: Options) -> Found:
        """What happened until now; may wait for the time between readings."""


def main(source: Source, options: Options, say: Say, *, live: bool) -> int:
    """Show rounds until there are enough, or Ctrl-C. `live` clears the screen before each."""
    done = 0
    try:
        while not options.rounds or done < options.rounds:
            found = source.rows(options)
            _show(found, options, say, live=live)
            done += 1
    except KeyboardInterrupt:
        return 0
    return 0


def _show(found: Found, options: Options, say: Say, *, live: bool) -> None:
    rows = view.sort(found.rows, options.sort)
    if options.form == "json":
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        tree = view.plain(rows, found.notes, found.seconds, now)
        say(json.dumps(tree, indent=2 if options.rounds == 1 else None))
        return
    if live:
        say(_CLEAR)
    view.show(rows, found.notes, found.seconds, tables.console())


def _selected(options: Options, namespace: str, pod: str) -> bool:
    return (not options.namespace or options.namespace == namespace) and (
        not options.pod or fnmatch.fnmatchcase(pod, options.pod)
    )


@dataclass(slots=True)
class _Snapshot:
    """One reading of everything."""

    at: float
    readings: dict[tuple[str, ...], tuple[Site, Reading]]
    processors: dict[int, Processor]
    notes: tuple[str, ...]
    vanished: frozenset[tuple[str, ...]]
    """What was found and then had no counters any more."""


@dataclass(slots=True)
class Node:
    """This node's cgroups, read anew in every round, so that new containers appear."""

    where: Where
    before: _Snapshot | None = field(default=None, init=False)
    named: Sites | None = field(default=None, init=False)
    """Groups named by path: they must be there at first, and may vanish and come back then."""

    def rows(self, options: Options) -> Found:
        before = self.before or self._read(options)
        time.sleep(options.seconds)
        after = self.before = self._read(options)
        rows = list(_rows(before, after))
        return Found(rows, (*after.notes, *_left(before, after)), after.at - before.at)

    def _read(self, options: Options) -> _Snapshot:
        found = self.named or sites.find(self.where)
        if self.where.groups:
            self.named = found
        chosen = [one for one in found.sites if _selected(options, one.namespace, one.pod)]
        notes, readings, vanished = [*found.notes], {}, set()
        if found.sites and not chosen:
            notes.append(f"none of {len(found.sites)} groups is selected by namespace and pod")
        stat = Directory(str(self.where.root / "proc")).read("stat") or ""
        for site in chosen:
            try:
                reading = measure.read(site.directories, time.monotonic(), str(self.where.root / "proc"))
            except CounterError as error:
                notes.append(f"{site.directories[0]}: {error}")
                continue
            if reading is not None:
                readings[site.key] = (site, reading)
            elif site.container:
                vanished.add(site.key)
        return _Snapshot(
            time.monotonic(), readings, processors.parse(stat), tuple(notes), frozenset(vanished)
        )


def _rows(before: _Snapshot, after: _Snapshot) -> Iterator[Row]:
    for key, (site, reading) in after.readings.items():
        if key not in before.readings:
            continue
        earlier = before.readings[key][1]
        rates = measure.between(earlier.counters, reading.counters)
        note = "; ".join(reading.lacks)
        if isinstance(rates, Unusable):
            yield Row(site.namespace, site.pod, site.container, note=rates.why)
            continue
        if not site.container and not rates.throttled:
            continue
        verdict = measure.judge(rates, _around(before, after, site))
        yield Row(site.namespace, site.pod, site.container, "", rates, verdict, note)


def _around(before: _Snapshot, after: _Snapshot, site: Site) -> Surroundings | None:
    cpus = measure.allowed(site.directories)
    ticks = os.sysconf("SC_CLK_TCK")
    return processors.around(before.processors, after.processors, cpus, after.at - before.at, ticks)


def _left(before: _Snapshot, after: _Snapshot) -> Iterator[str]:
    gone = len((before.readings.keys() - after.readings.keys()) | (after.vanished - before.vanished))
    new = len(after.readings.keys() - before.readings.keys())
    if gone:
        yield f"{gone} ended while being watched"
    if new:
        yield f"{new} started meanwhile: shown in the next round"
    if _few(before, after):
        yield f"fewer than {_PERIODS} periods between readings: a longer --interval says more"


def _few(before: _Snapshot, after: _Snapshot) -> bool:
    periods = [
        reading.counters.quota.period_us
        for _, reading in after.readings.values()
        if reading.counters.quota.quota_us is not None
    ]
    return bool(periods) and (after.at - before.at) * 1e6 < _PERIODS * max(periods)


@dataclass(slots=True)
class Prometheus:
    """A cluster's containers over a window that ends now."""

    server: Server
    window: str
    answered: bool = field(default=False, init=False)

    def rows(self, options: Options) -> Found:
        if self.answered:
            time.sleep(options.seconds)
        try:
            pod = _pattern(options.pod)
            found, notes = prometheus_series.measure(self.server, self.window, options.namespace, pod)
        except PrometheusError as error:
            if not self.answered:
                raise
            return Found([], (f"{error}: tried again in {options.seconds:g} s",), 0.0)
        self.answered = True
        rows = [_measured(one) for one in found]
        return Found(rows, tuple(notes), _longest(found))


def _pattern(glob: str) -> str:
    """A glob as a pattern for Prometheus, which anchors it; RE2 does not know all of `fnmatch.translate`."""
    return "".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in glob)


def _measured(one: Measured) -> Row:
    who = one.watched
    if isinstance(one.rates, Unusable):
        return Row(who.namespace, who.pod, who.container, who.node, note=one.rates.why)
    return Row(who.namespace, who.pod, who.container, who.node, one.rates, measure.judge(one.rates))


def _longest(found: Iterable[Measured]) -> float:
    return max((one.rates.seconds for one in found if not isinstance(one.rates, Unusable)), default=0.0)
