"""Cgroups that compete with a container for its CPUs: its siblings, and those of every group above it.

At each level the kernel divides a busy CPU among the groups that are runnable there, by weight (kernel
documentation, scheduler/sched-design-CFS and admin-guide/cgroup-v2, "Weights"). So a pod's sibling competes
with the pod, not with its container. Weights are in cpu.shares: 1024 for one CPU of request in version 1;
version 2's cpu.weight times 10.24, as the kernel converts it (sched_weight_from_cgroup).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel.files import Directory

_NICE_0: Final = 1024
_IDLE: Final = 3
"""The kernel's WEIGHT_IDLEPRIO: of groups with cpu.idle."""
_MAX_DEPTH: Final = 6
_MAX_GROUPS: Final = 512
_ACTIVE: Final = 10.0
"""Milliseconds a second (1 % of a CPU): what used less claims no share."""
_NOTICED: Final = 0.01

Paths = tuple[str, ...]
"""The directories of one cgroup, one in each hierarchy."""


@dataclass(frozen=True, slots=True)
class GroupWeight:
    """One cgroup: its directory, its weight in cpu.shares, and the CPU time that it has used in microseconds.

    `used_us` is None where it is not counted; in version 1 it is that of the container's CPUs only.
    """

    path: str
    weight: int
    idle: bool = False
    used_us: int | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A group on the container's path, and the groups beside it that may use some of the container's CPUs.

    `loose_us` is the CPU time of processes that are in the group above itself, beside these groups, None
    where there are none; `elsewhere` are groups beside it that may use none of its CPUs now.
    """

    own: GroupWeight
    siblings: tuple[GroupWeight, ...] = ()
    loose_us: int | None = None
    elsewhere: tuple[GroupWeight, ...] = ()


class GroupReader:
    """Reads the levels of many containers at one moment: groups that these share are read once."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Paths, str], GroupWeight | None] = {}
        self._allowed: dict[Paths, CPUSet | None] = {}
        self._names: dict[Paths, list[str]] = {}

    def levels(self, directories: Iterable[str], cpus: CPUSet | None = None) -> tuple[Level, ...]:
        """Return the levels of the cgroup with these directories, the lowest first.

        `cpus` are those that it may use (None: all). Empty where no weights can be read.
        """
        paths, levels = tuple(directories), list[Level]()
        while above := _parents(paths):
            if own := self._group(paths, cpus):
                levels.append(self._level(own, paths, above, cpus))
            paths = above
        return tuple(levels)

    def _level(self, own: GroupWeight, paths: Paths, above: Paths, cpus: CPUSet | None) -> Level:
        groups, siblings, elsewhere = [own], list[GroupWeight](), list[GroupWeight]()
        for name in self._below(above):
            beside = _child(above, name)
            if beside == paths or not (group := self._group(beside, cpus)):
                continue
            groups.append(group)
            overlaps = cpus is None or (allowed := self._cpus(beside)) is None or allowed & cpus
            (siblings if overlaps else elsewhere).append(group)
        total, used = _used_us(above, cpus), [group.used_us for group in groups]
        counted = [each for each in used if each is not None]
        loose = None if total is None or len(counted) < len(used) else max(0, total - sum(counted))
        if loose and not _has_processes(self._weighted(above)):
            loose = None  # what the groups used from their reading to that of the group above
        return Level(own, tuple(siblings), loose, tuple(elsewhere))

    def _group(self, paths: Paths, cpus: CPUSet | None) -> GroupWeight | None:
        key = paths, "" if cpus is None else str(cpus)
        if key not in self._groups:
            self._groups[key] = _group(paths, cpus)
        return self._groups[key]

    def _below(self, paths: Paths) -> list[str]:
        """Names of the groups below, from the hierarchy that has weights."""
        if paths not in self._names:
            self._names[paths] = Directory(self._weighted(paths)).directories("")
        return self._names[paths]

    @staticmethod
    def _weighted(paths: Paths) -> str:
        """Directory in the hierarchy that has weights."""
        return next((path for path in paths if _has_weights(path)), paths[0])

    def _cpus(self, paths: Paths) -> CPUSet | None:
        """CPUs of a group, or of the groups below that have the processes; None where that is unknown."""
        if paths not in self._allowed:
            self._allowed[paths] = self._union(paths)
        return self._allowed[paths]

    def _union(self, paths: Paths) -> CPUSet | None:
        union, seen, stack = CPUSet(), 0, [(paths, _MAX_DEPTH)]
        while stack:
            group, depth = stack.pop()
            below, seen = self._below(group), seen + 1
            if seen > _MAX_GROUPS or (below and not depth):
                return None
            if not below or (_first(group, "cgroup.procs") or "").strip():
                if (own := allowed_cpus(group)) is None:
                    return None
                union |= own
            stack += [(_child(group, name), depth - 1) for name in below]
        return union


def _parents(paths: Paths) -> Paths:
    """The group above in every hierarchy; empty above the topmost one."""
    above = (str(PurePosixPath(path).parent) for path in paths)
    return tuple(path for path in above if _is_group(path))


def _child(paths: Paths, name: str) -> Paths:
    return tuple(f"{path}/{name}" for path in paths)


def _is_group(path: str) -> bool:
    return Directory(path).read("cgroup.procs") is not None


def _first(paths: Paths, name: str) -> str | None:
    return next((text for path in paths if (text := Directory(path).read(name)) is not None), None)


def _has_processes(path: str) -> bool:
    """Whether there are processes in the group itself; also where that cannot be read."""
    processes = Directory(path).read("cgroup.procs")
    return processes is None or bool(processes.strip())


def _has_weights(path: str) -> bool:
    tree = Directory(path)
    return any(tree.read(name) is not None for name in ("cpu.shares", "cpu.weight"))


def allowed_cpus(directories: Iterable[str]) -> CPUSet | None:
    """The CPUs that the cgroup may use now; None without a cpuset controller."""
    for path in directories:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            try:
                cpus = CPUSet.parse((Directory(path).read(name) or "").strip())
            except CPUSetError:
                continue
            if cpus:
                return cpus
    return None


def _group(paths: Paths, cpus: CPUSet | None) -> GroupWeight | None:
    """None where the group has no weight that can be read, or has gone."""
    idle = (_first(paths, "cpu.idle") or "0").strip() == "1"
    shares, weight = (_number(_first(paths, name)) for name in ("cpu.shares", "cpu.weight"))
    if shares is None and weight is None:
        return None
    amount = shares if shares is not None else math.floor((weight or 0) * _NICE_0 / 100 + 0.5)
    return GroupWeight(paths[0], _IDLE if idle else max(amount, 1), idle, _used_us(paths, cpus))


def _used_us(paths: Paths, cpus: CPUSet | None) -> int | None:
    """CPU time used, on these CPUs only where the kernel counts it by CPU (cpuacct)."""
    if cpus is not None and (by_cpu := (_first(paths, "cpuacct.usage_percpu") or "").split()):
        counted = [int(each) for cpu, each in enumerate(by_cpu) if cpu in cpus and each.isdecimal()]
        return sum(counted) // 1000
    if (ns := _number(_first(paths, "cpuacct.usage"))) is not None:
        return ns // 1000
    lines = (line.split() for line in (_first(paths, "cpu.stat") or "").splitlines())
    return next((_number(line[1]) for line in lines if line[:1] == ["usage_usec"] and line[1:]), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


# What they did between two readings.


@dataclass(frozen=True, slots=True)
class Competitor:
    """Group that used CPU time beside the container: `used` in milliseconds a second.

    `relative` is its weight as a multiple of the container's: of a CPU that both keep busy it gets relative
    ÷ (1 + relative). `loose`: processes in a group above itself, beside the groups in it.
    """

    path: str
    weight: int
    relative: float
    used: float
    idle: bool = False
    loose: bool = False

    @property
    def title(self) -> str:
        return f"{self.path} (beside its groups)" if self.loose else self.path


@dataclass(frozen=True, slots=True)
class Claim:
    """The weight of a group on the container's path, and that of all active groups beside it together."""

    path: str
    own: int
    active: int


@dataclass(frozen=True, slots=True)
class Competition:
    """All competitors, those that used most first.

    `share` is the part of its CPUs that the container gets at least while all of them that used 1 % of a CPU
    or more are busy, 0 to 1.
    """

    weight: int
    share: float
    competitors: tuple[Competitor, ...] = ()
    claims: tuple[Claim, ...] = ()
    """At every level of its path, the lowest first."""
    unnamed: float = 0.0
    """CPU time in ms a second of small competitors that are not listed, in what was read from a record."""

    @property
    def used(self) -> float:
        """CPU time of all competitors in milliseconds a second."""
        return sum(competitor.used for competitor in self.competitors) + self.unnamed

    @property
    def noticed(self) -> tuple[Competitor, ...]:
        """Competitors that used a hundredth and more of what all used, those that used most first."""
        least = _NOTICED * self.used
        return tuple(competitor for competitor in self.competitors if competitor.used >= least)

    @property
    def relative(self) -> float:
        """The weight of all active competitors together, as a multiple of the container's."""
        return (1 - self.share) / self.share


def competition(before: Sequence[Level], after: Sequence[Level], seconds: float) -> Competition | None:
    """Return what competed with the container between two readings of its levels; None without any.

    A group that began in between has used its time since then.
    """
    if not after or seconds <= 0:
        return None
    share, competitors, claims = 1.0, list[Competitor](), list[Claim]()
    for number, level in enumerate(after):
        earlier = before[number] if number < len(before) else Level(level.own)
        own = level.own.weight * share
        beside = list(_beside(level, earlier, own, seconds))
        active = sum(group.weight for group in beside if group.used >= _ACTIVE)
        competitors += beside
        claims.append(Claim(level.own.path, level.own.weight, active))
        share = least_share(claims)
    ordered = sorted((each for each in competitors if each.used > 0), key=lambda each: -each.used)
    return Competition(after[0].own.weight, share, tuple(ordered), tuple(claims))


def least_share(claims: Iterable[Claim]) -> float:
    """Part of its CPUs that a container gets at least while all active groups beside its path are busy."""
    return math.prod(claim.own / (claim.own + claim.active) for claim in claims)


def _beside(level: Level, earlier: Level, own: float, seconds: float) -> Iterator[Competitor]:
    """`own` is the weight that the container has at this level while its active siblings are busy."""
    past = {group.path: group.used_us or 0 for group in (*earlier.siblings, *earlier.elsewhere)}
    for group in level.siblings:
        used = max(0, (group.used_us or 0) - past.get(group.path, 0)) / 1000 / seconds
        yield Competitor(group.path, group.weight, group.weight / own, used, group.idle)
    if level.loose_us is not None and earlier.loose_us is not None:
        used = max(0, level.loose_us - earlier.loose_us) / 1000 / seconds
        weight = _NICE_0 * max(1, round(used / 1000))
        above = str(PurePosixPath(level.own.path).parent)
        yield Competitor(above, weight, weight / own, used, loose=True)
