"""Which of Koordinator's policies hold for a pod on a node, where pod, node, kubelet and profile have a say.

The order is the proposal's. Bind policy: what the node requires (its label, else the kubelet's
full-pcpus-only), which a pod must not contradict; then the pod's; then the profile's default. NUMA strategy:
the pod's, the node's label, the kubelet's distribute-cpus-across-numa, the profile's. Topology policy: the
node's (label, kubelet, profile) and the pod's must not differ; where only one of them says so, it holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, PlacementSpec

__all__ = ["NodePolicies", "Policies", "merged", "resolve"]

_T = TypeVar("_T")


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
    """What holds. `notes` are the policies that have no effect on this machine."""

    bind: BindPolicy | None
    bind_required: bool
    exclusive: ExclusivePolicy
    strategy: NUMAStrategy | None
    numa: NUMAPolicy
    numa_exclusive: bool
    """A pod in one NUMA node must not be where pods span several, nor the other way round."""
    notes: tuple[Reason, ...] = ()


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
) -> Policies | Reason:
    """Return the policies of a pod with `cpus` of its own (0: none), or why pod and node contradict.

    The node's cores have `threads` each.
    `default` is the profile's bind policy, for pods that name none. Where cores differ, `threads` is what
    upstream takes for all, the average, and `most_threads` what the widest have.
    """
    single = max(threads, most_threads) == 1
    numa = _numa(placement_spec, node)
    if isinstance(numa, Reason):
        return numa
    if cpus and (conflict := _contradiction(placement_spec, node, single=single)):
        return conflict
    bind, required, notes = _bind(placement_spec, node, default, single=single)
    if cpus and required and bind is BindPolicy.FULL_PCPUS and cpus % threads:
        return Reason(Code.POD_NOT_MULTIPLE_OF_CORE, (cpus, threads))
    exclusive = placement_spec.exclusive_policy or ExclusivePolicy.NONE
    if exclusive is ExclusivePolicy.PCPU_LEVEL and single:
        exclusive = ExclusivePolicy.NONE
        notes += (Reason(Code.PCPU_LEVEL_WITHOUT_SMT, (ExclusivePolicy.PCPU_LEVEL,)),)
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


def _numa(placement_spec: PlacementSpec, node: NodePolicies) -> NUMAPolicy | Reason:
    """The pod's and the node's; gocrane's awareness stands in for a pod that names no policy."""
    own, here = placement_spec.numa or NUMAPolicy.NONE, node.numa or NUMAPolicy.NONE
    if own and here and own is not here:
        return Reason(Code.NUMA_POLICY_CONFLICT, (own, here))
    if not own and placement_spec.topology_aware is not None:
        return NUMAPolicy.SINGLE_NUMA_NODE if placement_spec.topology_aware else NUMAPolicy.NONE
    return own or here


def _numa_exclusive(placement_spec: PlacementSpec) -> bool:
    """Required by default if, and only if, the pod itself names a topology policy."""
    return (
        bool(placement_spec.numa) if placement_spec.numa_exclusive is None else placement_spec.numa_exclusive
    )


def _contradiction(placement_spec: PlacementSpec, node: NodePolicies, *, single: bool) -> Reason | None:
    """A pod that requires what the node does not do, or asks to be spread where only full cores are given."""
    own, here = placement_spec.bind, node.bind
    spread = own is BindPolicy.SPREAD_BY_PCPUS
    against = placement_spec.bind_required or (spread and here is BindPolicy.FULL_PCPUS)
    if own and here and own is not here and against and not (spread and single):
        return Reason(Code.BIND_POLICY_CONFLICT, (placement_spec.bind_required, own, here))
    if spread and placement_spec.bind_required and single:
        return Reason(Code.BIND_POLICY_NEEDS_SMT, (own,))
    return None


def _bind(
    placement_spec: PlacementSpec, node: NodePolicies, default: BindPolicy | None, *, single: bool
) -> tuple[BindPolicy | None, bool, tuple[Reason, ...]]:
    bind = node.bind or placement_spec.bind or default
    required = node.bind is not None or (placement_spec.bind_required and bind is not None)
    if bind is BindPolicy.SPREAD_BY_PCPUS and single:
        return BindPolicy.FULL_PCPUS, False, (Reason(Code.SPREAD_WITHOUT_SMT, (bind,)),)
    return bind, required, ()
