"""`corelane explain pod`: the scheduler's own record of its decision, else the decision taken again today."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from corelane.app import local_instance, status
from corelane.app.explain import recorded
from corelane.app.explain.recorded import Endpoint, NoScheduler
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.agent_leases import DURATION
from corelane.kube.apierrors import APIError, NoCluster, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.meta import Object, ObjectMeta, condition
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.topologies import list_topologies
from corelane.node import NodeState
from corelane.node.explain.json_values import json_value
from corelane.node.explain.pod_decision import ContainerCPUs, PodDecision, Source, Verdict
from corelane.scheduler import profiles as configurations
from corelane.scheduler.events import AgentLeaseChanged, SchedulerEvent, Unwatched
from corelane.scheduler.explain import recompute
from corelane.scheduler.explain.trial import Snapshot, Trial
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.object_watches import KINDS, OPTIONAL
from corelane.scheduler.plugins import default
from corelane.view import explain as view
from corelane.view import tables


class NoSuchPod(LookupError):  # noqa: N818 - a state
    """Neither the cluster nor the scheduler's record has the pod."""


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Which pod, and where its cluster and its scheduler are."""

    name: str
    namespace: str | None = None
    kubeconfig: Path | None = None
    scheduler: str | None = None
    config: Path | None = None
    """The scheduler's configuration; None is the default profile."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's objects, read once, and the profiles that decide."""

    profiles: tuple[Profile, ...] = field(default_factory=lambda: (default.profile(),))
    nodes: tuple[Node, ...] = ()
    topologies: tuple[NodeResourceTopology, ...] = ()
    pods: tuple[Pod, ...] = ()
    others: tuple[SchedulerEvent, ...] = ()
    """Further objects that the scheduler looks at, as its events."""

    @property
    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.status.phase not in status.ENDED]

    def profile(self, pod: Pod) -> Profile:
        """Return the profile of a pod's schedulerName; the first for a pod of another scheduler."""
        named = (one for one in self.profiles if one.name == pod.spec.scheduler_name)
        return next(named, self.profiles[0])

    def snapshot(self) -> Snapshot:
        """Return the objects as the scheduler reads them."""
        return Snapshot(
            {node.metadata.name: node for node in self.nodes},
            {topology.metadata.name: topology for topology in self.topologies},
            {pod.metadata.uid: pod for pod in self.alive},
            self.others,
        )


def main(query: PodQuery, output: str, say: Callable[[str], None]) -> int:
    """Print why a pod is where it is, or why it is nowhere; return 0.

    Raises NoSuchPod; NoAnswer if the cluster is unreachable and no record has the pod; NoScheduler for a
    given scheduler that does not answer.
    """
    found = explain(query)
    if output == "json":
        say(json.dumps(json_value(found), indent=2))
    else:
        view.show(found, tables.console())
    return 0


def explain(query: PodQuery) -> PodDecision:
    """Return the explanation. Raises as `main` does."""
    query = _split(query)
    kubeconfig = query.kubeconfig or local_instance.kubeconfig()
    profiles = _profiles(query.config)
    records, notes = _records(query, kubeconfig)
    try:
        cluster = replace(asyncio.run(_read(kubeconfig)), profiles=profiles)
    except (NoCluster, APIError) as error:
        if records:
            why = f"the cluster was not read ({error}): CPUs on the node, and what would help, are left out"
            return replace(records[0], notes=(*records[0].notes, why))
        if isinstance(error, APIError) and not isinstance(error, Unreachable):
            raise
        raise status.NoAnswer(
            f"{error}; is `corelane up` running? Start it, or name a cluster with --kubeconfig"
        ) from error
    return _explained(query, records, cluster, notes)


def _profiles(config: Path | None) -> tuple[Profile, ...]:
    return configurations.read(config).configuration().profiles if config else (default.profile(),)


def _split(query: PodQuery) -> PodQuery:
    """Take a name written as namespace/name apart."""
    namespace, slash, name = query.name.rpartition("/")
    if slash and query.namespace in (None, namespace):
        return replace(query, name=name, namespace=namespace)
    return query


def _records(query: PodQuery, kubeconfig: Path | None) -> tuple[list[PodDecision], list[str]]:
    """Read the scheduler's records; one that was not named and does not answer is only noted."""
    endpoint: Endpoint | None
    endpoint = recorded.named(query.scheduler) if query.scheduler else recorded.beside(kubeconfig)
    if endpoint is None:
        return [], []
    try:
        return recorded.read(endpoint, query.namespace or "default", query.name), []
    except NoScheduler as error:
        if query.scheduler:
            raise
        return [], [str(error)]


async def _read(kubeconfig: Path | None) -> Cluster:
    client = KubeClient.connect(kubeconfig)
    try:
        nodes, topologies, pods = await asyncio.gather(
            client.list(Node), list_topologies(client), client.list(Pod)
        )
        others = await asyncio.gather(*(_events(client, kind, event) for kind, event in KINDS))
    finally:
        await client.close()
    more = (*chain.from_iterable(others), *_missing_leases(topologies, chain.from_iterable(others)))
    return Cluster(nodes=tuple(nodes.items), topologies=topologies, pods=tuple(pods.items), others=more)


async def _events(
    client: KubeClient, kind: type[Object], event: Callable[[float, Any, Any], SchedulerEvent]
) -> list[SchedulerEvent]:
    """List a kind that the scheduler can do without."""
    if kind is Lease:
        leases, at = await status.agent_leases(client), _now()
        return [event(-status.renewed_before(lease, at), None, lease) for lease in leases]
    try:
        listing = await client.list(kind)
    except APIError as error:
        absent = error.code == 404 and kind in OPTIONAL
        return [] if absent else [Unwatched(0, kind.api.plural, str(error))]
    return [event(0, None, one) for one in listing.items]


def _missing_leases(
    topologies: Iterable[NodeResourceTopology], others: Iterable[SchedulerEvent]
) -> Iterator[SchedulerEvent]:
    """Yield that the Lease of an agent is gone, as a scheduler would have seen it."""
    there = {one.new.metadata.name for one in others if isinstance(one, AgentLeaseChanged) and one.new}
    for name in (one.metadata.name for one in topologies if translate.is_leased(one)):
        if name not in there:
            meta = ObjectMeta(name=name, namespace=keys.AGENT_NAMESPACE)
            yield AgentLeaseChanged(-DURATION, Lease(metadata=meta), None)


def _explained(
    query: PodQuery, records: list[PodDecision], cluster: Cluster, notes: Iterable[str]
) -> PodDecision:
    namespace = query.namespace or "default"
    pod = _pod(cluster.pods, namespace, query.name)
    if pod is None:
        if not records:
            raise NoSuchPod(_not_found(cluster.pods, namespace, query.name))
        return replace(records[0], notes=(*records[0].notes, *notes, *_others(records[1:])))
    own = [one for one in records if one.uid == pod.metadata.uid]
    rest = [one for one in records if one.uid != pod.metadata.uid]
    found = _with_today(own[0], cluster, pod) if own else _again(cluster, pod)
    more = (*_of_scheduler(pod, found, cluster.profile(pod).name), *notes, *_others(rest))
    with_facts = _with_facts(found, cluster, pod)
    return replace(with_facts, notes=(*with_facts.notes, *more))


def _pod(pods: Iterable[Pod], namespace: str, name: str) -> Pod | None:
    asked = (namespace, name)
    return next((pod for pod in pods if (pod.metadata.namespace, pod.metadata.name) == asked), None)


def _not_found(pods: Iterable[Pod], namespace: str, name: str) -> str:
    elsewhere = sorted({pod.metadata.namespace for pod in pods if pod.metadata.name == name})
    if elsewhere:
        return (
            f"pod {namespace}/{name}: not found; pods of this name are in namespace {', '.join(elsewhere)}: "
            f"give -n {elsewhere[0]}"
        )
    there = sorted(pod.metadata.name for pod in pods if pod.metadata.namespace == namespace)
    near = [one for one in there if one.startswith(name)]
    hint = f"pods with names that begin so: {', '.join(near[:5])}" if near else "see `kubectl get pods -A`"
    return f"pod {namespace}/{name}: not found, and the scheduler has no record of it; {hint}"


def _others(records: list[PodDecision]) -> Iterator[str]:
    if records:
        when = ", ".join(f"{one.uid} ({one.time}, {one.verdict})" for one in records[:3])
        yield f"the scheduler also has a record of other pods of this name: {when}"


def _again(cluster: Cluster, pod: Pod) -> PodDecision:
    if pod.status.phase in status.ENDED:
        return PodDecision(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            Source.RECOMPUTED,
            _now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            Verdict.ENDED,
            f"phase {pod.status.phase}: {pod.status.reason or 'its containers have ended'}",
            scheduler=pod.spec.scheduler_name,
            node=pod.spec.node_name,
        )
    trial = Trial(cluster.profile(pod), cluster.snapshot())
    return _with_nomination(recompute.decide(trial, pod, _now()), cluster, pod)


def _with_nomination(found: PodDecision, cluster: Cluster, pod: Pod) -> PodDecision:
    """Say which pods a pod with a nominated node waits for; with these, no change is needed."""
    node = pod.status.nominated_node_name
    if found.node or pod.spec.node_name or node not in {one.metadata.name for one in cluster.nodes}:
        return found
    there = (one for one in cluster.alive if one.spec.node_name == node and one.metadata.deletion_timestamp)
    titles = sorted(one.title for one in there if one.spec.priority < pod.spec.priority)
    nearest = None if titles else found.nearest
    return replace(found, nominated=node, terminating=tuple(titles), nearest=nearest)


def _with_today(record: PodDecision, cluster: Cluster, pod: Pod) -> PodDecision:
    """Add to a pending pod's record what would help on today's state."""
    if record.node or pod.spec.node_name:
        return record
    today = _again(cluster, pod)
    if today.node:
        return replace(record, notes=(*record.notes, f"on today's state the pod fits on node {today.node}"))
    return replace(
        record,
        nearest=today.nearest,
        nominated=today.nominated,
        terminating=today.terminating,
        notes=(*record.notes, *today.notes),
    )


def _with_facts(found: PodDecision, cluster: Cluster, pod: Pod) -> PodDecision:
    """Add the CPUs that the node's ledger has for the containers of a bound pod."""
    node = pod.spec.node_name
    if not node or pod.status.phase in status.ENDED:
        return found
    published = (one for one in cluster.topologies if one.metadata.name == node)
    states = status.ledgers(cluster.nodes, published, cluster.alive)
    proposed = {one.name: one for one in found.containers}
    lines = _lines(cluster, pod, states)
    notes = tuple(_without_agent(cluster, pod))
    taken = found.source is Source.RECORDED
    containers = tuple(_fact(proposed.get(one.name), one, taken=taken) for one in lines)
    verdict = Verdict.BOUND if found.verdict is Verdict.BINDING else found.verdict
    return replace(
        found, containers=containers or found.containers, verdict=verdict, notes=(*found.notes, *notes)
    )


def _without_agent(cluster: Cluster, pod: Pod) -> Iterator[str]:
    """Say that nothing applies the CPUs of a bound pod, nor writes its condition."""
    node = pod.spec.node_name
    leases = [one.new for one in cluster.others if isinstance(one, AgentLeaseChanged) and one.new]
    if fault := status.agent_faults(cluster.topologies, leases, _now()).get(node):
        yield f"no agent runs on node {node}: exclusive CPUs are not applied to what starts there; {fault}"
        if pinned := condition(pod.status.conditions, keys.PINNED):
            yield f"condition {keys.PINNED}={pinned.status} is as old as the agent's last sign of life"


def _lines(cluster: Cluster, pod: Pod, states: Mapping[str, NodeState]) -> Iterator[ContainerCPUs]:
    simulated = {node.metadata.name for node in cluster.nodes if status.is_simulated(node)}
    if pod.spec.node_name in states:
        for line in status.container_lines(pod, states, simulated):
            yield ContainerCPUs(line.container, CPUSet(), line.cpus, line.lane, line.why)


def _fact(proposal: ContainerCPUs | None, fact: ContainerCPUs, *, taken: bool) -> ContainerCPUs:
    """Join the node's fact with what was proposed; what would be proposed today is not."""
    if proposal is None:
        return fact
    return replace(
        fact,
        proposed=proposal.proposed if taken else CPUSet(),
        why=fact.why or (proposal.why if taken else ""),
    )


def _of_scheduler(pod: Pod, found: PodDecision, ours: str) -> Iterator[str]:
    """Say whose decision it was, where it was not corelane's."""
    node, chosen = pod.spec.node_name, found.node
    if found.source is Source.RECORDED:
        return
    by = pod.metadata.annotations.get(keys.SCHEDULED_BY, "")
    name = pod.spec.scheduler_name
    if name != ours and not by:
        whose = f"the pod's scheduler is {name or 'not named'}, not {ours}"
        yield f"{whose}: the node and the scores are those that corelane would choose"
    elif node:
        yield "no record of the decision: the scheduler was not asked, was restarted, or has dropped it"
    if node and chosen and node != chosen:
        yield f"the pod is on node {node}; today, without it, node {chosen} would be chosen"


def _now() -> datetime:
    return datetime.now(UTC)
