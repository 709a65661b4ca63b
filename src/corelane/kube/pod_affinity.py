"""Pods' affinity to other pods and their topology spread constraints, decoded on demand from raw JSON."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from msgspec import field

from corelane.kube.meta import Wire
from corelane.kube.selectors import LabelSelector


class PodAffinityTerm(Wire, frozen=True):
    """Without namespaces and namespace selector, the pod's own namespace."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Affinity and anti-affinity have the same form."""

    required: tuple[PodAffinityTerm, ...] = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class TopologySpreadConstraint(Wire, frozen=True):
    """`when_unsatisfiable` is DoNotSchedule or ScheduleAnyway; policies are Honor or Ignore."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()
