"""`corelane explain pod`: the scheduler's own record of its decision, else the decision taken again today."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corelane.app import local_instance, status
from corelane.cpuset import CPUSet
from corelane.fleet import cluster as fleet
from corelane.fleet import recorded_decisions
from corelane.fleet.cluster import ClusterObjects
from corelane.fleet.recorded_decisions import NoScheduler
from corelane.fleet.status import container_lines, without_agent
from corelane.kube.apierrors import APIError, NoCluster, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.node.explain.json_values import json_value
from corelane.node.explain.pod_decision import ContainerCPUs, PodDecision, with_facts
from corelane.scheduler import profiles as configurations
from corelane.scheduler.explain import recompute
from corelane.scheduler.explain.recompute import Snapshot
from corelane.scheduler.framework.profile import Profile
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
    namespace, slash, name = query.name.rpartition("/")
    if slash and query.namespace in (None, namespace):
        query = replace(query, name=name, namespace=namespace)
    kubeconfig = query.kubeconfig or local_instance.kubeconfig()
    config = configurations.read(query.config).configuration() if query.config else None
    profiles = config.profiles if config else (default.profile(),)
    endpoint = (
        recorded_decisions.named(query.scheduler)
        if query.scheduler
        else recorded_decisions.beside(kubeconfig)
    )
    records: list[PodDecision] = []
    notes: list[str] = []
    try:
        if endpoint:
            records = recorded_decisions.read(endpoint, query.namespace or "default", query.name)
    except NoScheduler as error:
        if query.scheduler:
            raise
        notes.append(str(error))  # of a scheduler that was not named
    try:
        cluster = asyncio.run(_read(kubeconfig))
    except (NoCluster, APIError) as error:
        if records:
            why = f"the cluster was not read ({error}): CPUs on the node, and what would help, are left out"
            return replace(records[0], notes=(*records[0].notes, why))
        if isinstance(error, APIError) and not isinstance(error, Unreachable):
            raise
        raise status.NoAnswer(
            f"{error}; is `corelane up` running? Start it, or name a cluster with --kubeconfig"
        ) from error
    return _explained(query, records, cluster, profiles, notes)


async def _read(kubeconfig: Path | None) -> ClusterObjects:
    client = KubeClient.connect(kubeconfig)
    try:
        return await fleet.read(client)
    finally:
        await client.close()


def _explained(
    query: PodQuery,
    records: list[PodDecision],
    cluster: ClusterObjects,
    profiles: Sequence[Profile],
    notes: Iterable[str] = (),
) -> PodDecision:
    namespace = query.namespace or "default"
    key = namespace, query.name
    pod = next((pod for pod in cluster.pods if (pod.metadata.namespace, pod.metadata.name) == key), None)
    if pod is None:
        if not records:
            raise NoSuchPod(_not_found(cluster.pods, namespace, query.name))
        return replace(records[0], notes=(*records[0].notes, *notes, *_others(records[1:])))
    own = [one for one in records if one.uid == pod.metadata.uid]
    rest = [one for one in records if one.uid != pod.metadata.uid]
    # The first profile is that of pods of another scheduler, too.
    profile = next((one for one in profiles if one.name == pod.spec.scheduler_name), profiles[0])
    snapshot = Snapshot(
        {node.metadata.name: node for node in cluster.nodes},
        {topology.metadata.name: topology for topology in cluster.topologies},
        {pod.metadata.uid: pod for pod in cluster.alive},
        cluster.others,
        {kind.plural: kind.error for kind in cluster.unread},
        cluster.agents,
    )
    trial = profile, snapshot, pod, cluster.read_at
    decision = recompute.with_today(own[0], *trial) if own else recompute.decide_again(*trial)
    more = (*recompute.decided_by(decision, pod, profile.name), *notes, *_others(rest))
    with_facts = _with_facts(decision, cluster, pod)
    return replace(with_facts, notes=(*with_facts.notes, *more))


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


def _with_facts(decision: PodDecision, cluster: ClusterObjects, pod: Pod) -> PodDecision:
    """Add the CPUs that the node's ledger has for the containers of a bound pod."""
    node = pod.spec.node_name
    if not node or pod.ended:
        return decision
    there = tuple(one for one in cluster.topologies if one.metadata.name == node)
    states = status.ledgers_of(replace(cluster, topologies=there)).states
    facts = [
        ContainerCPUs(line.container, CPUSet(), line.cpus, line.lane, line.why)
        for line in container_lines(pod, states)
        if node in states
    ]
    return with_facts(decision, facts, without_agent(cluster, pod))
