"""What `corelane limits watch` does: reads counters again and again, and shows the rates between readings."""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from corelane.app.limits import prometheus, sites
from corelane.app.limits.prometheus import PrometheusError, PrometheusServer
from corelane.app.limits.sites import ALL, CgroupSource, Selection, Sites, Snapshot
from corelane.kernel.cpu_time import attribution, threads
from corelane.kernel.cpu_time.counters import MeasuredNode, Rates
from corelane.kernel.cpu_time.threads import Crowd
from corelane.limits.measure import Measurement
from corelane.view import tables
from corelane.view.limits import pages
from corelane.view.limits import watch as view

_PERIODS: Final = 5
"""A rate over fewer periods than this is not reliable."""
_CLEAR: Final = "\x1b[H\x1b[2J"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What is shown and how. `rounds` 0 goes on until interrupted; `seconds` is between readings."""

    seconds: float
    rounds: int
    form: str
    sort: str
    selected: Selection = ALL


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class WatchRound:
    """One round: measurements and notes, and over how many seconds."""

    measured: list[Measurement]
    notes: tuple[str, ...]
    seconds: float
    node: MeasuredNode | None = None
    """Where it is one node's."""
    at: str = field(default_factory=_now)


class Watched(Protocol):
    """What is watched."""

    def round(self, options: WatchOptions) -> WatchRound:
        """Measure until now; may wait for the time between readings."""

    def whole(self) -> WatchRound | None:
        """Return all rounds as one, from the first reading to the last; None where that is not known."""


def main(watched: Watched, options: WatchOptions, say: Say, *, live: bool) -> int:
    """Show rounds until there are enough, or Ctrl-C. `live` clears the screen before each.

    Return 3 if all rounds were measured and none had a container, else 0.
    """
    done = list[WatchRound]()
    counted, measured = 0, 0
    try:
        while not options.rounds or counted < options.rounds:
            each = watched.round(options)
            if options.form == "html":
                done.append(each)
            else:
                _show(each, options, say, live=live)
            measured += len(each.measured)
            counted += 1
    except KeyboardInterrupt:
        _page(done, watched.whole(), options, say)
        return 0
    _page(done, watched.whole(), options, say)
    return 0 if measured else 3


def _page(done: Sequence[WatchRound], whole: WatchRound | None, options: WatchOptions, say: Say) -> None:
    """All rounds as one file of HTML."""
    if done:
        shown = whole or done[-1]
        measured = view.sort(shown.measured, options.sort)
        trees = [_tree(each, view.sort(each.measured, options.sort)) for each in done]
        summary = _tree(shown, measured) if whole else None
        say(pages.watched(trees, view.HEADINGS, view.rows(measured), summary))


def _tree(each: WatchRound, measured: Sequence[Measurement]) -> dict[str, Any]:
    return view.plain(measured, each.notes, each.seconds, each.at, each.node)


def _show(each: WatchRound, options: WatchOptions, say: Say, *, live: bool) -> None:
    measured = view.sort(each.measured, options.sort)
    if options.form == "json":
        say(json.dumps(_tree(each, measured), indent=2 if options.rounds == 1 else None))
        return
    if live:
        say(_CLEAR)
    view.show(measured, each.notes, each.seconds, tables.console())


@dataclass(slots=True)
class NodeWatch:
    """This node's cgroups, searched and read in every round, so that new containers appear."""

    source: CgroupSource
    before: tuple[Sites, Snapshot] | None = field(default=None, init=False)
    named: Sites | None = field(default=None, init=False)
    """Cgroups named by path: they must exist at first, and may vanish and come back then."""
    first: tuple[Sites, Snapshot] | None = field(default=None, init=False)
    crowds: dict[tuple[str, ...], list[tuple[float, Crowd]]] = field(default_factory=dict, init=False)
    """What the looks at threads showed in each round, with the round's seconds."""
    with_throttled: bool | None = field(default=None, init=False)
    """Whether this kernel counts throttled time as waiting, as soon as a throttled container has shown it."""

    def round(self, options: WatchOptions) -> WatchRound:
        chosen, before = self.before or self._read(options)
        crowds = sites.wait(chosen.sites, options.seconds, self.source.root)
        if (shown := attribution.counts_throttled_time(crowds.values())) is not None:
            self.with_throttled = shown
        self.first = self.first or (chosen, before)
        chosen, after = self._read(options)
        self.before = chosen, after
        if options.form == "html":
            for key, crowd in crowds.items():
                self.crowds.setdefault(key, []).append((after.at - before.at, crowd))
        measured = self._measured(chosen, before, after, crowds)
        notes = (*chosen.notes, *after.notes, *_changes(before, after))
        return WatchRound(measured, notes, after.at - before.at, sites.node(self.source.root))

    def whole(self) -> WatchRound | None:
        if self.first is None or self.before is None:
            return None
        (_, first), (chosen, last) = self.first, self.before
        crowds = {key: crowd for key, of in self.crowds.items() if (crowd := threads.joined(of))}
        measured = self._measured(chosen, first, last, crowds)
        return WatchRound(measured, (), last.at - first.at, sites.node(self.source.root))

    def _measured(
        self, chosen: Sites, before: Snapshot, after: Snapshot, crowds: Mapping[tuple[str, ...], Crowd]
    ) -> list[Measurement]:
        """Containers that were there at both readings."""
        there = before.readings.keys() & after.readings.keys()
        found = (
            sites.measurement(site, before, after, crowds.get(site.directories), self.with_throttled)
            for site in chosen.sites
            if site.directories in there
        )
        return [each for each in found if each]

    def _read(self, options: WatchOptions) -> tuple[Sites, Snapshot]:
        found = self.named or sites.find(self.source)
        if self.source.groups:
            self.named = found
        chosen = tuple(site for site in found.sites if options.selected.takes(site))
        notes = found.notes
        if found.sites and not chosen:
            notes = (*notes, f"none of {len(found.sites)} cgroups matches the namespace and pod")
        return Sites(chosen, notes), sites.snapshot(chosen, self.source.root)


def _changes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    gone = len((before.readings.keys() - after.readings.keys()) | (after.gone - before.gone))
    new = len(after.readings.keys() - before.readings.keys())
    if gone:
        yield f"{gone} ended since the last reading"
    if new:
        yield f"{new} started since the last reading: shown in the next round"
    if after.periods and after.at - before.at < _PERIODS * max(after.periods):
        yield f"fewer than {_PERIODS} periods between readings: use a longer --interval"


@dataclass(slots=True)
class PrometheusWatch:
    """A cluster's containers over a window that ends now."""

    server: PrometheusServer
    window: str
    answered: bool = field(default=False, init=False)

    def whole(self) -> WatchRound | None:
        return None

    def round(self, options: WatchOptions) -> WatchRound:
        if self.answered:
            time.sleep(options.seconds)
        try:
            # Prometheus anchors the pattern; RE2 does not have all of `fnmatch.translate`.
            glob = options.selected.pod
            pod = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in glob)
            measured, notes = prometheus.measure(self.server, self.window, options.selected.namespace, pod)
        except PrometheusError as error:
            if not self.answered:
                raise
            return WatchRound([], (f"{error}: next try in {options.seconds:g} s",), 0.0)
        self.answered = True
        seconds = [each.rates.seconds for each in measured if isinstance(each.rates, Rates)]
        return WatchRound(measured, tuple(notes), max(seconds, default=0.0))
