"""Competitors for a container's CPUs, and the load of these CPUs, as `limits watch -o json` records them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from corelane.kernel.cpu_time import competitors
from corelane.kernel.cpu_time.competitors import Claim, Competition, Competitor
from corelane.kernel.cpu_time.counters import CPULoad


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

    def mean(name: str) -> Any:
        values = [(seconds, getattr(each, name)) for seconds, each in parts]
        if any(value is None for _, value in values):
            return None
        return sum(seconds * value for seconds, value in values) / total

    return CPULoad(parts[-1][1].cpus, mean("busy"), mean("steal"), mean("idle"))


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
    claims = tuple(Claim(level.group, level.weight, _active(level, parts, total)) for level in last.levels)
    found = sorted(_competitors(parts, total), key=lambda one: -one.used)
    used = sum(seconds * _used(each) for seconds, each in parts) / total
    unnamed = max(0.0, used - sum(one.used for one in found))
    share = competitors.least_share(claims)
    return Competition(last.weight, share, tuple(found), claims, unnamed)


def _active(level: _Level, parts: Sequence[tuple[float, RecordedCompetition]], total: float) -> int:
    of_rounds = [
        seconds * each.active
        for seconds, recorded in parts
        for each in recorded.levels
        if each.group == level.group
    ]
    return round(sum(of_rounds) / total)


def _competitors(parts: Sequence[tuple[float, RecordedCompetition]], total: float) -> Iterator[Competitor]:
    of_group: dict[tuple[str, bool], list[tuple[float, _Competitor]]] = {}
    for seconds, recorded in parts:
        for each in recorded.competitors:
            of_group.setdefault((each.group, each.loose), []).append((seconds, each))
    for (group, loose), rounds in of_group.items():
        last, used = rounds[-1][1], sum(seconds * each.used for seconds, each in rounds) / total
        yield Competitor(group, last.weight, last.relative, used, last.idle, loose)


def _used(recorded: RecordedCompetition) -> float:
    """CPU time of all competitors, in ms a second."""
    listed = sum(each.used for each in recorded.competitors)
    return max(listed, recorded.used or 0.0)
