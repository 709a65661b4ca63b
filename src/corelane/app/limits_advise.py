"""What `corelane limits advise` does: measures or reads measurements, finds whose they are, and advises."""

from __future__ import annotations

import fnmatch
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

from corelane.app import (
    datadir,
    limits_advise_latency,
    limits_advise_objects,
    limits_advise_record,
    limits_node,
    limits_prometheus,
)
from corelane.app.limits_advise_objects import AdviseError, Owner, World
from corelane.app.limits_node import Site, Where
from corelane.app.prometheus import Server, bearer
from corelane.kernel import cfs
from corelane.limits import advice, measure
from corelane.limits.advice import Advice, Answer, Evidence, Latency, Slot
from corelane.limits.advice.evidence import refusal
from corelane.limits.lint import Policy
from corelane.limits.measure import CounterError, Counters, Rates, Reading, Unusable
from corelane.view import limits_advice as view
from corelane.view import tables

__all__ = [
    "AdviseError",
    "Measured",
    "Node",
    "Options",
    "Prometheus",
    "Record",
    "Server",
    "Source",
    "Where",
    "bearer",
    "main",
]

Say = Callable[[str], None]
_PERIOD: Final = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """What advice is wanted for and how it is shown; `objects` is a file, `kubeconfig` a cluster's."""

    form: str = "table"
    namespace: str = ""
    pod: str = ""
    container: str = ""
    objects: Path | None = None
    kubeconfig: Path | None = None
    latency: str = ""
    policy: Policy = field(default_factory=Policy)
    everything: bool = False


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


def main(source: Source, options: Options, say: Say) -> int:
    """Measure, advise, print. 0 with an answer for someone, 1 where nobody's data can carry one."""
    world, notes = _world(source, options)
    names = dict(world.names())

    def wanted(namespace: str, pod: str) -> bool:
        return (not options.namespace or options.namespace == namespace) and (
            not options.pod or fnmatch.fnmatchcase(pod, options.pod)
        )

    found, more = source.measure(wanted)
    found = [_named(one, names) for one in found]
    found = [
        one for one in found if wanted(one.namespace, one.pod) and options.container in ("", one.container)
    ]
    notes += more
    if not found:
        notes.append("nothing measured fits the selection")
    groups = _grouped(found, world)
    latency = _latency(source, options, groups)
    advised = [_advise(group, world, options.policy, latency, source.weight) for group in groups]
    _print(advised, notes, options, say)
    return int(all(one.answer is Answer.REFUSED for one in advised))


def _print(advised: Sequence[Advice], notes: Sequence[str], options: Options, say: Say) -> None:
    found = view.sort(advised)
    if options.form == "json":
        say(json.dumps(view.plain(found, notes), indent=2))
    else:
        view.show(found, notes, tables.console(), everything=options.everything)


def _world(source: Source, options: Options) -> tuple[World, list[str]]:
    """Objects of a file, of the cluster that was named, or else of the one that is being measured."""
    world, notes = World(policy=options.policy, local_milli=source.local_milli), []
    if options.objects:
        limits_advise_objects.read(options.objects, world)
    elif options.kubeconfig:
        notes += limits_advise_objects.fetch(options.kubeconfig, world)
    elif (own := source.cluster) and own.is_file():
        notes += _own_cluster(own, world)
    return world, notes


def _own_cluster(kubeconfig: Path, world: World) -> list[str]:
    """What `corelane up` serves; it need not run for its containers to be measured."""
    from corelane.kube.errors import APIError

    try:
        limits_advise_objects.fetch(kubeconfig, world)
    except (APIError, ImportError, ValueError) as error:
        return [f"{kubeconfig}: {error}: advice without knowing the pods"]
    return []


def _named(one: Measured, names: Mapping[str, tuple[str, str, str]]) -> Measured:
    """By the list of pods, where the node itself only knows ids."""
    found = names.get(one.id) or names.get(one.pod.removeprefix("pod ").replace("_", "-"))
    if not found:
        return one
    namespace, pod, container = found
    return Measured(
        namespace,
        pod,
        container or one.container,
        one.rates,
        one.node,
        one.id,
        one.cpus,
        one.slots,
        one.notes,
    )


Group = tuple[tuple[Owner, str], list[Measured]]


def _grouped(found: Iterable[Measured], world: World) -> list[Group]:
    """By workload and container: the replicas of one have the same settings."""
    groups: dict[tuple[Owner, str], list[Measured]] = {}
    for one in found:
        groups.setdefault((world.owner(*one.pod_key), one.container), []).append(one)
    return sorted(groups.items(), key=lambda group: group[0])


def _advise(
    group: Group, world: World, policy: Policy, latency: Latency | None, weight: Callable[[int], int]
) -> Advice:
    """By the replica that lost most, of those whose data can carry advice."""
    (_, container), replicas = group
    shown = {one.pod_key: one.cpus or world.cpus(one.pod_key) or policy.node_cpus for one in replicas}
    found = [(one, _evidence(one, replicas, shown[one.pod_key], latency)) for one in replicas]
    usable = [(one, evidence) for one, evidence in found if not refusal(evidence)]
    worst, evidence = max(usable or found, key=lambda each: _lost(each[0]))
    subject = world.subject(*worst.pod_key, container)
    nodes = world.nodes(dict.fromkeys(one.pod_key for one in replicas))
    return advice.advise(subject, evidence, nodes, policy, weight)


def _lost(one: Measured) -> float:
    return (one.rates.lost or 0.0) if isinstance(one.rates, Rates) else -1.0


def _evidence(one: Measured, replicas: Sequence[Measured], cpus: int, latency: Latency | None) -> Evidence:
    throttled = [other.rates.throttled or 0.0 for other in replicas if isinstance(other.rates, Rates)]
    return Evidence(
        one.rates,
        one.pod,
        one.node,
        len(replicas),
        cpus,
        one.slots,
        latency,
        one.notes,
        tuple(sorted(throttled, reverse=True)),
    )


def _latency(source: Source, options: Options, groups: Sequence[Group]) -> Latency | None:
    """One service's, so it must be clear whose it is."""
    if not options.latency:
        return None
    if len(groups) > 1:
        names = ", ".join(f"{name}/{container}" for ((_, _, name), container), _ in groups[:3])
        raise AdviseError(
            f"--latency is of one container, but {len(groups)} are selected ({names}, …): "
            "choose one with -n, --pod and --container"
        )
    if Path(options.latency).is_file() or not isinstance(source, Prometheus):
        return limits_advise_latency.of_file(Path(options.latency))
    return source.latency(options.latency)


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
        found = limits_node.find(self.where)
        sites = [one for one in found.sites if self.where.groups or wanted(one.namespace, one.pod) or one.id]
        notes = [*found.notes]
        rounds = [self._read(sites, notes)]
        for _ in range(max(1, round(self.seconds / _PERIOD)) if self.every_period else 1):
            time.sleep(_PERIOD if self.every_period else self.seconds)
            rounds.append(self._read(sites, notes))
        made = [one for site in sites if (one := _measured(site, [each.get(site.key) for each in rounds]))]
        if gone := sum(each is None for each in (rounds[-1].get(site.key) for site in sites)):
            notes.append(f"{gone} ended while being measured")
        return made, list(dict.fromkeys(notes))

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


def _measured(site: Site, readings: Sequence[Reading | None]) -> Measured | None:
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
        found, notes = limits_prometheus.measure(self.server, self.window)
        made = [
            Measured(who.namespace, who.pod, who.container, one.rates, who.node)
            for one in found
            if wanted((who := one.watched).namespace, who.pod)
        ]
        return made, notes

    def latency(self, query: str) -> Latency:
        """Percentiles of a histogram's buckets. Raises AdviseError."""
        return limits_advise_latency.of_buckets(limits_prometheus.vector(self.server, query), query)


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
        found = limits_advise_record.read(self.path)
        made = [
            Measured(one.namespace, one.pod, one.container, one.rates, one.node, slots=one.slots)
            for one in found
        ]
        return made, []
