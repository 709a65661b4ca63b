"""Measurements that `limits watch -o json` wrote, read back: the rounds of each container combined."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from corelane.app.limits.advise_inputs import AdviseError
from corelane.app.state import files
from corelane.kernel.cpu_time import competitors
from corelane.kernel.cpu_time.competitors import Claim, Competition, Competitor
from corelane.kernel.cpu_time.counters import CPULoad, MeasuredNode, Quota, Rates, Unusable
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.measure import Measurement


class RecordedLoad(msgspec.Struct, frozen=True):
    """What all processes used of the container's CPUs, by the JSON keys of watch."""

    cpus: int
    busy: float = msgspec.field(name="busyMsPerSecond")
    steal: float = msgspec.field(name="stealMsPerSecond", default=0.0)
    idle: float | None = msgspec.field(name="idleMsPerSecond", default=None)


class _Level(msgspec.Struct, frozen=True):
    group: str
    weight: Annotated[int, msgspec.Meta(ge=1)]
    active: float = msgspec.field(name="activeWeight")


class _Competitor(msgspec.Struct, frozen=True):
    group: str
    weight: int
    relative: float = msgspec.field(name="relativeWeight")
    used: float = msgspec.field(name="usedMsPerSecond")
    idle: bool = False
    loose: bool = msgspec.field(name="processesBesideGroups", default=False)


class RecordedCompetition(msgspec.Struct, frozen=True):
    """The groups that compete for the container's CPUs, by the JSON keys of watch.

    Without `levels`, which older versions did not write, no share can be computed from it.
    """

    weight: int
    levels: list[_Level] = []
    used: float | None = msgspec.field(name="usedMsPerSecond", default=None)
    competitors: list[_Competitor] = []


def amounts(
    load: RecordedLoad | None, competition: RecordedCompetition | None
) -> Iterator[tuple[str, float | None]]:
    """Every number, with its name."""
    if load:
        for name in load.__struct_fields__:
            yield f"cpuLoad: {name}", getattr(load, name)
    if competition is None:
        return
    yield "competition: used", competition.used
    for level in competition.levels:
        yield f"competition: {level.group}: active weight", level.active
    for each in competition.competitors:
        for name in ("weight", "relative", "used"):
            yield f"competition: {each.group}: {name}", getattr(each, name)


def load(rounds: Sequence[tuple[float, RecordedLoad | None]]) -> CPULoad | None:
    """The mean over rounds (seconds, load); None where one has none."""
    total = sum(seconds for seconds, _ in rounds)
    parts = [(seconds, each) for seconds, each in rounds if each is not None]
    if len(parts) < len(rounds) or total <= 0:
        return None
    busy, steal, idle = (_mean(name, parts, total) for name in ("busy", "steal", "idle"))
    return CPULoad(parts[-1][1].cpus, busy or 0.0, steal or 0.0, idle)


def combine(rounds: Sequence[tuple[float, RecordedCompetition | None]]) -> Competition | None:
    """What competed over all rounds (seconds, competition); None where one does not have it.

    Weights on the path are those of the last round. Of groups that were active for a part of the time only a
    part of the weight counts.
    """
    total = sum(seconds for seconds, _ in rounds)
    parts = [(seconds, each) for seconds, each in rounds if each is not None and each.levels]
    if len(parts) < len(rounds) or total <= 0:
        return None
    last = parts[-1][1]
    active: dict[str, float] = {}
    of_group: dict[tuple[str, bool], list[tuple[float, _Competitor]]] = {}
    used = 0.0
    for seconds, recorded in parts:
        for level in recorded.levels:
            active[level.group] = active.get(level.group, 0.0) + seconds * level.active
        for each in recorded.competitors:
            of_group.setdefault((each.group, each.loose), []).append((seconds, each))
        used += seconds * max(sum(each.used for each in recorded.competitors), recorded.used or 0.0)
    claims = tuple(
        Claim(level.group, level.weight, round(active[level.group] / total)) for level in last.levels
    )
    rivals = []
    for (group, loose), of_rounds in of_group.items():
        newest, mean = of_rounds[-1][1], sum(seconds * each.used for seconds, each in of_rounds) / total
        rivals.append(Competitor(group, newest.weight, newest.relative, mean, newest.idle, loose))
    rivals.sort(key=lambda rival: -rival.used)
    unnamed = max(0.0, used / total - sum(rival.used for rival in rivals))
    return Competition(last.weight, competitors.least_share(claims), tuple(rivals), claims, unnamed)


_HELP: Final = "give what `corelane limits watch -o json` prints"
_TIMES: Final = ("used", "throttled", "above", "burst", "waiting", "stalled", "queued")
_COUNTS: Final = ("periods", "throttled_periods", "bursts")
_LARGEST: Final = 1e12
_LATEST: Final = 2


class _LostTo(msgspec.Struct, frozen=True):
    """What was lost by cause, by the JSON keys of watch."""

    limit: float = msgspec.field(name="limitMsPerSecond", default=0.0)
    above: float = msgspec.field(name="limitAboveMsPerSecond", default=0.0)
    neighbours: float = msgspec.field(name="neighboursMsPerSecond", default=0.0)
    own: float = msgspec.field(name="ownThreadsMsPerSecond", default=0.0)
    hypervisor: float = msgspec.field(name="hypervisorMsPerSecond", default=0.0)
    scheduling: float = msgspec.field(name="schedulingMsPerSecond", default=0.0)
    error: float = msgspec.field(name="errorMsPerSecond", default=0.0)
    paused: float | None = msgspec.field(name="pausedShare", default=None)


class _Row(msgspec.Struct, frozen=True):
    """A container in a round, by the JSON keys of watch."""

    namespace: str
    pod: str
    container: str | None
    node: str | None = None
    id: str | None = None
    limit: int | None = msgspec.field(name="cpuLimitMillis", default=None)
    period: float = msgspec.field(name="periodMs", default=100.0)
    burst_limit: float = msgspec.field(name="burstLimitMs", default=0.0)
    used: float | None = msgspec.field(name="usedMsPerSecond", default=None)
    throttled: float | None = msgspec.field(name="throttledMsPerSecond", default=None)
    above: float | None = msgspec.field(name="throttledAboveMsPerSecond", default=None)
    cpus: int | None = None
    threads: int | None = None
    waiters: int | None = msgspec.field(name="threadsThatWaited", default=None)
    load: RecordedLoad | None = msgspec.field(name="cpuLoad", default=None)
    periods: float | None = None
    throttled_periods: float | None = msgspec.field(name="throttledPeriods", default=None)
    bursts: float | None = None
    burst: float | None = msgspec.field(name="burstMsPerSecond", default=None)
    waiting: float | None = msgspec.field(name="waitingMsPerSecond", default=None)
    stalled: float | None = msgspec.field(name="stalledMsPerSecond", default=None)
    queued: float | None = msgspec.field(name="queuedMsPerSecond", default=None)
    waited: float | None = msgspec.field(name="waitedForOthersMsPerSecond", default=None)
    lost_to: _LostTo | None = msgspec.field(name="lostTo", default=None)
    competition: RecordedCompetition | None = None
    notes: list[str] = []
    remarks: list[str] = []

    @property
    def quota(self) -> Quota:
        period = round(self.period * 1000)
        amount = None if self.limit is None else max(self.limit * period // 1000, 1000)
        return Quota(amount, period, round(self.burst_limit * 1000))


class _Round(msgspec.Struct, frozen=True):
    seconds: float
    containers: list[_Row]
    cpus: int | None = msgspec.field(name="nodeCPUs", default=None)
    version: int | None = msgspec.field(name="cgroupVersion", default=None)


def read(path: Path) -> tuple[list[Measurement], MeasuredNode]:
    """Read every container in a file of one or more rounds, and the node: 0 CPUs where that is unknown.

    Raises AdviseError.
    """
    rounds = list(_rounds(path, files.read_stream(path)))
    node = MeasuredNode(rounds[-1].cpus or 0, rounds[-1].version or _LATEST)
    rows: dict[tuple[str, str, str, str], list[tuple[float, _Row]]] = {}
    for each in rounds:
        for row in each.containers:
            key = row.namespace, row.pod, row.container or "", row.node or ""
            rows.setdefault(key, []).append((each.seconds, row))
    return [_measurement(key, of_container, len(rounds)) for key, of_container in rows.items()], node


def _rounds(path: Path, content: bytes) -> Iterator[_Round]:
    documents = list(_documents(path, content))
    if not documents:
        raise AdviseError(f"{path}: is empty: {_HELP}")
    for number, document in enumerate(documents, 1):
        try:
            one = msgspec.convert(document, _Round)
        except msgspec.ValidationError as error:
            raise AdviseError(f"{path}: round {number}: {error}: {_HELP}") from None
        # Numbers that watch never writes are refused, NaN among them.
        if not 0 <= one.seconds < _LARGEST:
            raise AdviseError(f"{path}: round {number}: seconds: {one.seconds} is not a duration")
        for row in one.containers:
            if not 1 <= row.period <= 1000:
                raise AdviseError(f"{path}: round {number}: periodMs: {row.period} is not between 1 and 1000")
            for name, value in _amounts(row):
                if value is not None and not 0 <= value < _LARGEST:
                    raise AdviseError(
                        f"{path}: round {number}: {name.replace('_', ' ')}: {value} is not an amount"
                    )
        yield one


def _documents(path: Path, content: bytes) -> Iterator[Any]:
    """One document, or one per line; a last line that was cut off is left out."""
    try:
        yield json.loads(content)
        return
    except (ValueError, RecursionError):
        lines = [line for line in content.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) > 1:
                return
            raise AdviseError(f"{path}:{number}: is not JSON: {_HELP}") from None


def _amounts(row: _Row) -> Iterator[tuple[str, float | None]]:
    for name in ("limit", "burst_limit", "cpus", "threads", "waiters", "waited", *_TIMES, *_COUNTS):
        yield name, getattr(row, name)
    for name in _LostTo.__struct_fields__ if row.lost_to else ():
        yield f"lostTo: {name}", getattr(row.lost_to, name)
    yield from amounts(row.load, row.competition)


def _measurement(key: tuple[str, str, str, str], rows: list[tuple[float, _Row]], rounds: int) -> Measurement:
    namespace, pod, container, node = key
    rates = _together(rows, rounds)
    if isinstance(rates, Unusable):
        return Measurement(rates, namespace, pod, container, node)
    last = rows[-1][1]
    return Measurement(
        rates,
        namespace,
        pod,
        container,
        node,
        last.id or "",
        last.cpus or 0,
        threads=max(row.threads or 0 for _, row in rows),
        load=load([(seconds, row.load) for seconds, row in rows]),
        waited=_mean("waited", rows, rates.seconds) or 0.0,
        competition=combine([(seconds, row.competition) for seconds, row in rows]),
        losses=_losses(rows, rates.seconds),
    )


def _losses(rows: list[tuple[float, _Row]], total: float) -> Losses | None:
    """The mean over the rounds; None where a round has none."""
    parts = [(seconds, row.lost_to) for seconds, row in rows if row.lost_to is not None]
    if len(parts) < len(rows):
        return None

    means = {name: _mean(name, parts, total) for name in _LostTo.__struct_fields__}
    causes = {name: mean or 0.0 for name, mean in means.items() if name != "paused"}
    return replace(Losses(**causes), paused=means["paused"])


def _together(rows: list[tuple[float, _Row]], rounds: int) -> Rates | Unusable:
    notes = list(dict.fromkeys(note for _, row in rows for note in row.notes))
    if all(row.used is None and row.throttled is None for _, row in rows):
        return Unusable("; ".join(notes) or "neither CPU time nor throttling was recorded")
    if len(rows) < rounds:
        notes.append(f"in {len(rows)} of {rounds} rounds only: started or ended meanwhile")
    if len({row.quota for _, row in rows}) > 1:
        notes.append("the CPU limit changed meanwhile")
    total = sum(seconds for seconds, _ in rows)
    if total <= 0:
        return Unusable("the rounds took no time")
    times: dict[str, Any] = {name: _mean(name, rows, total) for name in _TIMES}
    counts: dict[str, Any] = {name: _sum(getattr(row, name) for _, row in rows) for name in _COUNTS}
    remarks = dict.fromkeys(remark for _, row in rows for remark in row.remarks)
    quota, waiters = rows[-1][1].quota, max(row.waiters or 0 for _, row in rows)
    more: dict[str, Any] = {"quota": quota, "notes": tuple(notes), "remarks": tuple(remarks)}
    return Rates(total, **times, **counts, waiters=waiters, **more)


def _mean(name: str, rounds: Iterable[tuple[float, object]], total: float) -> float | None:
    amount = _sum(None if (one := getattr(row, name)) is None else one * seconds for seconds, row in rounds)
    return None if amount is None else amount / total


def _sum(values: Iterable[float | None]) -> float | None:
    """None where a value is missing: a sum would be too low."""
    amounts = list(values)
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)
