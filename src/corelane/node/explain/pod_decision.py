"""A scheduler's decision about a pod, as plain values that any view can draw and that travel as JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from corelane.cpuset import CPUSet
from corelane.node.explain.pod_explanation import Objective, Remedy


class Verdict(StrEnum):
    """Outcomes of a decision on a pod."""

    BOUND = "bound"
    BINDING = "binding"
    """A node is chosen and claimed; the binding is under way."""
    UNSCHEDULABLE = "unschedulable"
    """No node fits."""
    NOT_TRIED = "not-tried"
    """Gated, or not yet looked at."""
    ENDED = "ended"
    """Deleted, or its containers have ended."""


class Source(StrEnum):
    """Where an explanation is from."""

    RECORDED = "recorded"
    """The scheduler's record of the decision as it was taken."""
    RECOMPUTED = "recomputed"
    """The same decision taken again on the cluster's state of today."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that one plugin rejected for one reason; `nodes` are the first few of `count`."""

    plugin: str
    code: str
    message: str
    count: int
    nodes: tuple[str, ...] = ()
    resolvable: bool = True
    """Whether evicting pods can help."""


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """One plugin's score (0 to 100) for the nodes compared, in their order, and its weight."""

    plugin: str
    weight: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ContainerCPUs:
    """A container's CPUs as the scheduler proposed them, and as the node has them."""

    name: str
    proposed: CPUSet = field(default_factory=CPUSet)
    actual: CPUSet | None = None
    """CPUs in the node's ledger; None where no ledger names the container."""
    where: str = ""
    """Sharing of the CPUs, or the pool that the container runs in."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class NearestNode:
    """The node that lacks least, what it lacks, and the changes by which the pod would fit there."""

    name: str
    missing: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()
    """Amounts that are requested and free, and what holds the rest."""
    changes: tuple[Remedy, ...] = ()
    """Each was carried out on a copy of the cluster, and the pod fitted."""


@dataclass(frozen=True, slots=True)
class CourseStep:
    """One step of a pod's way: a time (RFC 3339, UTC), a stable key, and a sentence."""

    time: str
    step: str
    text: str


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A decision about a pod, and how it came about."""

    namespace: str
    name: str
    uid: str
    source: Source
    time: str
    """When it was taken (RFC 3339, UTC)."""
    verdict: Verdict
    message: str
    scheduler: str = ""
    """schedulerName of the pod."""
    node: str = ""
    """The node chosen."""
    kind: str = ""
    """Source of the node's CPUs: ledger, koordlet, kubelet-replay, zones, totals, damaged."""
    nodes: int = 0
    """Nodes considered."""
    feasible: int = 0
    """Nodes that fitted."""
    attempt: int = 0
    """Number of this attempt; 0 where it is unknown."""
    sequence: int = 0
    """Number of the decision since the scheduler started."""
    generation: int = 0
    """Generation of the chosen node's ledger that was decided on."""
    groups: tuple[NodeGroup, ...] = ()
    candidates: tuple[str, ...] = ()
    """The best nodes, the chosen one first."""
    totals: tuple[float, ...] = ()
    """Weighted score of each candidate."""
    terms: tuple[ScoreTerm, ...] = ()
    containers: tuple[ContainerCPUs, ...] = ()
    objective: Objective | None = None
    """The allocator's own terms for the CPUs, under policy pools."""
    nearest: NearestNode | None = None
    nominated: str = ""
    """The node where the pod is to be placed once pods of lower priority are gone, while it is pending."""
    terminating: tuple[str, ...] = ()
    """Those pods there that terminate, by namespace and name."""
    course: tuple[CourseStep, ...] = ()
    notes: tuple[str, ...] = ()


def with_facts(
    decision: PodDecision, facts: Iterable[ContainerCPUs], notes: Iterable[str] = ()
) -> PodDecision:
    """Return the decision about a bound pod with what its node has for its containers."""
    proposed = {container.name: container for container in decision.containers}
    recorded = decision.source is Source.RECORDED
    containers = tuple(_fact(proposed.get(fact.name), fact, recorded=recorded) for fact in facts)
    return replace(
        decision,
        containers=containers or decision.containers,
        verdict=Verdict.BOUND if decision.verdict is Verdict.BINDING else decision.verdict,
        notes=(*decision.notes, *notes),
    )


def _fact(proposal: ContainerCPUs | None, fact: ContainerCPUs, *, recorded: bool) -> ContainerCPUs:
    """Join the node's fact with what was proposed; what would be proposed today is left out."""
    if proposal is None or not recorded:
        return fact
    return replace(fact, proposed=proposal.proposed, why=fact.why or proposal.why)
