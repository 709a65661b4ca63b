"""The containers of this node as cgroups with names, and readings of their counters.

They are the kubelet's, corelane's own, those of Docker, Podman and other engines, systemd's units with a CPU
limit, and any cgroup given by its path.
"""

from __future__ import annotations

import fnmatch
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corelane.app import local_instance
from corelane.app.limits import service_groups
from corelane.app.state import cgroups, container_names
from corelane.app.state.files import StateFileError
from corelane.cpuset import CPUSet
from corelane.kernel import cgroup
from corelane.kernel.cpu_time import attribution, competitors, counters, threads
from corelane.kernel.cpu_time.competitors import Competition, GroupReader, Level
from corelane.kernel.cpu_time.counters import (
    CounterError,
    CPULoad,
    MeasuredNode,
    Processor,
    Rates,
    Reading,
    rates_between,
)
from corelane.kernel.cpu_time.threads import Counted, Crowd, ThreadWatch
from corelane.kernel.files import Directory
from corelane.limits.measure import Measurement

_OWN_SPECS: Final = "nodes/*/containers/containers/*/spec.json"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pods are selected: those of a namespace, and with names that match a glob; "" for all."""

    namespace: str = ""
    pod: str = ""

    def __call__(self, namespace: str, pod: str) -> bool:
        return self.namespace in ("", namespace) and (not self.pod or fnmatch.fnmatchcase(pod, self.pod))

    def takes(self, site: Site) -> bool:
        """Whether a site is selected; what is in no pod goes by its own name."""
        return self(site.namespace, site.pod or site.container)


ALL: Final = Selection()


@dataclass(frozen=True, slots=True)
class CgroupSource:
    """Where to find cgroups. `pods` is a file with the node's pods, `data_dir` the state of `corelane up`.

    Cgroups named by path (`groups`) replace the search.
    """

    root: Path = Path("/")
    pods: Path | None = None
    data_dir: Path | None = None
    groups: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """A container, or a pod as a whole (`container` empty), with its directory in every hierarchy.

    What is in no pod has its engine (docker, podman, systemd, …) as its namespace, and no pod.
    """

    namespace: str
    pod: str
    container: str
    id: str
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sites:
    """The containers found, and notes on what could not be found."""

    sites: tuple[Site, ...] = ()
    notes: tuple[str, ...] = ()


# Reading counters.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of all sites at about the same time, and of the node's CPUs where these were read."""

    at: float
    readings: Mapping[tuple[str, ...], Reading]
    """By the directories of a site, which stay when its names become known."""
    processors: Mapping[int, Processor]
    gone: frozenset[tuple[str, ...]]
    """Containers without counters: they ended between the search and the reading."""
    notes: tuple[str, ...]
    levels: Mapping[tuple[str, ...], tuple[Level, ...]] = field(default_factory=dict)
    """The weights on the path of each site, by its directories."""

    @property
    def periods(self) -> list[float]:
        """The quota periods of cgroups with a limit, in seconds."""
        quotas = [reading.counters.quota for reading in self.readings.values()]
        return [quota.period_us / 1e6 for quota in quotas if quota.quota_us is not None]

    def load_until(self, after: Snapshot, site: Site) -> CPULoad | None:
        """Load of the CPUs that the site may use, from here to a later reading."""
        cpus, ticks = competitors.allowed_cpus(site.directories), os.sysconf("SC_CLK_TCK")
        return counters.cpu_load(self.processors, after.processors, cpus, after.at - self.at, ticks)

    def competition_until(self, after: Snapshot, site: Site) -> Competition | None:
        """The cgroups that compete for its CPUs, from here to a later reading."""
        before, now = (each.levels.get(site.directories, ()) for each in (self, after))
        return competitors.competition(before, now, after.at - self.at)


def snapshot(sites: Iterable[Site], root: Path, *, with_cpus: bool = True) -> Snapshot:
    """Read the counters of all sites, and of the CPUs unless `with_cpus` is false."""
    proc = str(root / "proc")
    stat = Directory(proc).read("stat") if with_cpus else None
    readings: dict[tuple[str, ...], Reading] = {}
    levels, groups = dict[tuple[str, ...], tuple[Level, ...]](), GroupReader()
    gone, notes = set(), []
    for site in sites:
        try:
            reading = counters.read(site.directories, time.monotonic(), proc)
        except CounterError as error:
            notes.append(f"{site.directories[0]}: {error}")
            continue
        if reading is not None:
            readings[site.directories] = reading
            levels[site.directories] = groups.levels(
                site.directories, competitors.allowed_cpus(site.directories)
            )
        elif site.container:
            gone.add(site.directories)
    cpus = counters.processors(stat or "")
    return Snapshot(time.monotonic(), readings, cpus, frozenset(gone), tuple(notes), levels)


def measurement(
    site: Site,
    before: Snapshot,
    after: Snapshot,
    crowd: Crowd | None = None,
    with_throttled: bool | None = None,
) -> Measurement | None:
    """Rates of a site between two readings, with what looks at its threads showed in between.

    None for a pod as a whole that is not throttled. `with_throttled`: whether the kernel counts throttled
    time as waiting, None where that is unknown.
    """
    last = after.readings[site.directories]
    rates = rates_between(before.readings[site.directories].counters, last.counters)
    if not site.container and isinstance(rates, Rates) and not rates.throttled:
        return None
    cpus = competitors.allowed_cpus(site.directories)
    threads = max(before.readings[site.directories].threads or 0, last.threads or 0)
    load, rivals = before.load_until(after, site), before.competition_until(after, site)
    losses = None
    if isinstance(rates, Rates):
        losses, rates = attribution.attribute(rates, load, threads, crowd, rivals, with_throttled)
    return Measurement(
        rates,
        site.namespace,
        site.pod,
        site.container,
        id=site.id,
        cpus=len(cpus) if cpus else os.cpu_count() or 0,
        threads=threads,
        notes=last.lacks,
        load=load,
        competition=rivals,
        losses=losses,
    )


def node(root: Path) -> MeasuredNode:
    """The node that is measured here."""
    unified = (root / "sys/fs/cgroup/cgroup.controllers").exists()
    return MeasuredNode(os.cpu_count() or 0, 2 if unified else 1)


# Finding cgroups.


class _Spec(msgspec.Struct, frozen=True):
    """What is read of a record of corelane's own runtime; see `embedded.containers.records`."""

    name: str
    namespace: str
    pod: str


class _Stored(msgspec.Struct, frozen=True):
    id: str
    spec: _Spec
    directories: tuple[str, ...] = ()


def find(where: CgroupSource) -> Sites:
    """Find every running container.

    Raises StateFileError for a file that is not a list of pods, and for cgroups that do not exist.
    """
    if where.groups:
        return Sites(tuple(_named(path, where.root) for path in where.groups))
    sites, notes = _kubelets(where)
    sites += _own(where.data_dir or local_instance.of_kubeconfig())
    services = service_groups.find(where.root)
    trees = _hierarchies(where.root / "sys/fs/cgroup") if services.groups else []
    for group in services.groups:
        sites.append(Site(group.engine, "", group.name, group.id, _below(trees, group.path)))
    if services.unknown:
        notes.append(
            f"left out: {len(services.unknown)} cgroups with a CPU limit, which are not known containers or "
            f"units; measure one with --cgroup, such as {services.unknown[0]} in /sys/fs/cgroup"
        )
    if not sites:
        notes.append(_NOTHING)
    if not sites and services.unlimited:
        notes.append(
            f"systemd units without a CPU limit, which nothing throttles: {len(services.unlimited)}; measure "
            f"one with --cgroup, such as {services.unlimited[0]} in /sys/fs/cgroup"
        )
    return Sites(tuple(sites), tuple(notes))


_NOTHING: Final = (
    "no containers found: no cgroups of a kubelet, Docker, Podman, containerd, LXC or corelane up, and no "
    "systemd unit with a CPU limit. Run on the node itself as root; inside a container, mount the node's "
    "root directory and name it with --root; name any cgroup with --cgroup DIRECTORY; or measure a cluster "
    "with --prometheus URL"
)


def _kubelets(where: CgroupSource) -> tuple[list[Site], list[str]]:
    top = where.root / "sys/fs/cgroup"
    listed = container_names.read_pod_list(where.pods) if where.pods else container_names.PodList({})
    logged = container_names.logged(str(where.root / "var/log/containers"))
    try:
        groups = cgroups.read(str(top))
    except StateFileError as error:
        return [], [*listed.notes, str(error)]
    trees = _hierarchies(top)
    names = {}  # namespace, pod and container; ids where names are unknown
    for group in groups:
        link, pod, short = logged.get(group.id), listed.pods.get(group.uid), group.id[:12]
        container = link.container if link else short
        if pod:
            namespace, _, name = pod.title.partition("/")
            names[group.id] = namespace, name, pod.ids.get(group.id) or container
        else:
            names[group.id] = (*((link.namespace, link.pod) if link else ("", f"pod {group.uid}")), container)
    sites = [Site(*names[group.id], group.id, _below(trees, group.path)) for group in groups]
    pods = {group.path.rpartition("/")[0]: names[group.id][:2] for group in groups}
    sites += [Site(*name, "", "", _below(trees, path)) for path, name in pods.items()]
    return sites, [*listed.notes]


def _hierarchies(top: Path) -> list[Path]:
    """The mounted hierarchies: one in version 2, else one for each set of controllers."""
    if (top / "cgroup.controllers").exists():
        return [top]
    return sorted({path.resolve() for path in top.iterdir() if path.is_dir()})


def _below(trees: Iterable[Path], path: str) -> tuple[str, ...]:
    return tuple(str(tree / path) for tree in trees if (tree / path).is_dir())


def _own(data_dir: Path) -> Iterator[Site]:
    """The containers of a `corelane up`, from the records of its runtime; those that ended have no cgroup."""
    for record in sorted(data_dir.glob(_OWN_SPECS)):
        try:
            stored = msgspec.json.decode(record.read_bytes(), type=_Stored)
        except (OSError, ValueError, RecursionError):
            continue
        if directories := tuple(path for path in stored.directories if Path(path).is_dir()):
            yield Site(
                stored.spec.namespace, stored.spec.pod, stored.spec.name, stored.id, tuple(directories)
            )


def _named(path: Path, root: Path) -> Site:
    """A cgroup by its directory in any hierarchy, with its directories in the other hierarchies."""
    if not (path / "cgroup.procs").exists():
        raise StateFileError(f"--cgroup {path}: is not a cgroup: name a directory that has cgroup.procs")
    directory = path.resolve()
    try:
        mounts = [mount.directory.resolve() for mount in cgroup.mounts(root)]
    except OSError:
        mounts = []
    own = [mount for mount in mounts if directory.is_relative_to(mount)]
    if not own:
        return Site("", "", str(path), "", (str(directory),))
    inside = directory.relative_to(max(own, key=lambda mount: len(mount.parts)))
    others = [mount / inside for mount in mounts]
    beside = dict.fromkeys(
        map(str, [directory, *(other for other in others if (other / "cgroup.procs").exists())])
    )
    return Site("", "", str(inside), "", tuple(beside))


# Looks at the threads of containers while `limits watch` and `limits advise` wait between two readings.
#
# A first pair of looks finds the containers with threads that wait; only these are looked at further, as
# often as a budget of file reads allows.


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
    watched = []
    for site in sites:
        if threads.ids(site.directories):
            cpus = competitors.allowed_cpus(site.directories)
            watched.append(_Watched(site, cpus, ThreadWatch(len(cpus) if cpus else os.cpu_count() or 1)))
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


def _look(watched: Iterable[_Watched], proc: Directory) -> int:
    """Look at all; how many threads there were."""
    processors, total = counters.processors(proc.read("stat") or ""), 0
    for each in watched:
        found = threads.look(threads.ids(each.site.directories), proc)
        try:
            used, throttled = counters.used_and_throttled(each.site.directories)
        except CounterError:
            continue
        own = [one.idle for cpu, one in processors.items() if each.cpus is None or cpu in each.cpus]
        idle = sum(own) * 1000 / os.sysconf("SC_CLK_TCK") if own else None  # ms so far
        each.watch.add(Counted(time.monotonic(), used, throttled, idle), found)
        total += len(found)
    return total
