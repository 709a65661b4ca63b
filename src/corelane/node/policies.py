"""Which of Koordinator's policies hold for a pod on a node, where pod, node, kubelet and profile have a say.

The order is the proposal's. Bind policy: what the node requires (its label, else the kubelet's
full-pcpus-only), which a pod must not contradict; then the pod's; then the profile's default. NUMA strategy:
the pod's, the node's label, the kubelet's distribute-cpus-across-numa, the profile's. Topology policy: the
node's (label, kubelet, profile) and the pod's must not differ; where only one of them says so, it holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, PlacementSpec

__all__ = ["Conflict", "NodePolicies", "Policies", "merged", "resolve"]

_T = TypeVar("_T")

BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NUMA_CONFLICT: Final = "node(s) NUMA Topology policy not match"
NOT_MULTIPLE: Final = "node(s) requested cpus not multiple cpus per core"


@dataclass(frozen=True, slots=True)
class NodePolicies:
    """What one source says about all pods of a node; None where it does not say."""

    bind: BindPolicy | None = None
    """Required of every pod that is bound: FullPCPUs or SpreadByPCPUs."""
    strategy: NUMAStrategy | None = None
    numa: NUMAPolicy | None = None
    """NUMAPolicy.NONE says that nothing is aligned, whatever later sources say."""


@dataclass(frozen=True, slots=True)
class Policies:
    """What holds. `notes` tells in words what was left out because the machine cannot serve it."""

    bind: BindPolicy | None
    bind_required: bool
    exclusive: ExclusivePolicy
    strategy: NUMAStrategy | None
    numa: NUMAPolicy
    numa_exclusive: bool
    """A pod in one NUMA node must not be where pods span several, nor the other way round."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Pod and node cannot come together: upstream's reason, then which policies and what to do."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def merged(*sources: NodePolicies) -> NodePolicies:
    """What the first source that says so says: node's labels, kubelet, profile."""
    return NodePolicies(
        _first(source.bind for source in sources),
        _first(source.strategy for source in sources),
        _first(source.numa for source in sources),
    )


def resolve(
    placement_spec: PlacementSpec,
    node: NodePolicies,
    default: BindPolicy | None,
    *,
    cpus: int,
    threads: int,
    most_threads: int = 0,
) -> Policies | Conflict:
    """The policies of a pod with `cpus` of its own (0: none) on a node whose cores have `threads` each.

    `default` is the profile's bind policy, for pods that name none. Where cores differ, `threads` is what
    upstream takes for all, the average, and `most_threads` what the widest have.
    """
    single = max(threads, most_threads) == 1
    numa = _numa(placement_spec, node)
    if isinstance(numa, Conflict):
        return numa
    if cpus and (conflict := _contradiction(placement_spec, node, single=single)):
        return conflict
    bind, required, notes = _bind(placement_spec, node, default, single=single)
    if cpus and required and bind is BindPolicy.FULL_PCPUS and cpus % threads:
        detail = f"{cpus} requested, a core has {threads}: request a multiple of {threads}"
        return Conflict(NOT_MULTIPLE, detail)
    exclusive = placement_spec.exclusive_policy or ExclusivePolicy.NONE
    if exclusive is ExclusivePolicy.PCPU_LEVEL and single:
        exclusive = ExclusivePolicy.NONE
        notes += (f"{ExclusivePolicy.PCPU_LEVEL} means nothing here: no core has a second thread to share",)
    return Policies(
        bind,
        required,
        exclusive,
        placement_spec.strategy or node.strategy,
        numa,
        _numa_exclusive(placement_spec),
        notes,
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _numa(placement_spec: PlacementSpec, node: NodePolicies) -> NUMAPolicy | Conflict:
    """The pod's and the node's; gocrane's awareness stands in for a pod that names no policy."""
    own, here = placement_spec.numa or NUMAPolicy.NONE, node.numa or NUMAPolicy.NONE
    if own and here and own is not here:
        return Conflict(NUMA_CONFLICT, f"the pod's is {own}, the node's is {here}: leave one out")
    if not own and placement_spec.topology_aware is not None:
        return NUMAPolicy.SINGLE_NUMA_NODE if placement_spec.topology_aware else NUMAPolicy.NONE
    return own or here


def _numa_exclusive(placement_spec: PlacementSpec) -> bool:
    """Required by default if, and only if, the pod itself names a topology policy."""
    return (
        bool(placement_spec.numa) if placement_spec.numa_exclusive is None else placement_spec.numa_exclusive
    )


def _contradiction(placement_spec: PlacementSpec, node: NodePolicies, *, single: bool) -> Conflict | None:
    """A pod that requires what the node does not do, or asks to be spread where only full cores are given."""
    own, here = placement_spec.bind, node.bind
    spread = own is BindPolicy.SPREAD_BY_PCPUS
    against = placement_spec.bind_required or (spread and here is BindPolicy.FULL_PCPUS)
    if own and here and own is not here and against and not (spread and single):
        says = "requires" if placement_spec.bind_required else "asks for"
        return Conflict(BIND_CONFLICT, f"the pod {says} {own}, the node requires {here}: leave one out")
    if spread and placement_spec.bind_required and single:
        detail = f"{own} means nothing where a core has one thread: require {BindPolicy.FULL_PCPUS}"
        return Conflict(BIND_CONFLICT, detail)
    return None


def _bind(
    placement_spec: PlacementSpec, node: NodePolicies, default: BindPolicy | None, *, single: bool
) -> tuple[BindPolicy | None, bool, tuple[str, ...]]:
    bind = node.bind or placement_spec.bind or default
    required = node.bind is not None or (placement_spec.bind_required and bind is not None)
    if bind is BindPolicy.SPREAD_BY_PCPUS and single:
        note = f"{bind} means nothing here: a core has one thread, so every CPU is a core"
        return BindPolicy.FULL_PCPUS, False, (note,)
    return bind, required, ()
