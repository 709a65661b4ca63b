"""What `corelane limits advise` does: measures or reads measurements, finds whose they are, and advises."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from corelane.app.limits import advise_latency, advise_objects
from corelane.app.limits.advise_objects import AdviseError, ClusterSnapshot, Owner
from corelane.app.limits.advise_sources import Measured, Node, Prometheus, Record, Source
from corelane.app.limits.prometheus import Server, bearer
from corelane.app.limits.sites import Where
from corelane.limits import advice
from corelane.limits.advice import Advice, Answer, Evidence, Latency
from corelane.limits.advice.evidence import refusal
from corelane.limits.lint import Policy
from corelane.limits.measure import Rates
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


def _world(source: Source, options: Options) -> tuple[ClusterSnapshot, list[str]]:
    """Objects of a file, of the cluster that was named, or else of the one that is being measured."""
    world, notes = ClusterSnapshot(policy=options.policy, local_milli=source.local_milli), []
    if options.objects:
        advise_objects.read(options.objects, world)
    elif options.kubeconfig:
        notes += advise_objects.fetch(options.kubeconfig, world)
    elif (own := source.cluster) and own.is_file():
        notes += _own_cluster(own, world)
    return world, notes


def _own_cluster(kubeconfig: Path, world: ClusterSnapshot) -> list[str]:
    """What `corelane up` serves; it need not run for its containers to be measured."""
    from corelane.kube.apierrors import APIError

    try:
        advise_objects.fetch(kubeconfig, world)
    except (APIError, ImportError, ValueError) as error:
        return [f"{kubeconfig}: {error}: advice without knowing the pods"]
    return []


def _named(one: Measured, names: Mapping[str, tuple[str, str, str]]) -> Measured:
    """By the list of pods, where the node itself only knows ids."""
    found = names.get(one.id) or names.get(one.pod.removeprefix("pod ").replace("_", "-"))
    if not found:
        return one
    namespace, pod, container = found
    return replace(one, namespace=namespace, pod=pod, container=container or one.container)


Group = tuple[tuple[Owner, str], list[Measured]]


def _grouped(found: Iterable[Measured], world: ClusterSnapshot) -> list[Group]:
    """By workload and container: the replicas of one have the same settings."""
    groups: dict[tuple[Owner, str], list[Measured]] = {}
    for one in found:
        groups.setdefault((world.owner(*one.pod_key), one.container), []).append(one)
    return sorted(groups.items(), key=lambda group: group[0])


def _advise(
    group: Group,
    world: ClusterSnapshot,
    policy: Policy,
    latency: Latency | None,
    weight: Callable[[int], int],
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
        one.around,
        one.waited,
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
        return advise_latency.of_file(Path(options.latency))
    return source.latency(options.latency)
