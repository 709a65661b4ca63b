"""Label selectors on the wire, and pods' affinity and topology spread, decoded on demand from raw JSON."""

from __future__ import annotations

from msgspec import field

from corelane.kube.meta import Wire
from corelane.workload.selectors import LabelRequirement, Operator, Selector


class LabelSelectorRequirement(Wire, frozen=True):
    """`operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """All labels and all expressions must match; without any, every object matches.

    An absent selector is None where this is used, and matches no object.
    """

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def compiled(self) -> Selector:
        """Return the selector that can be matched. Raises ValueError for an unknown operator."""
        return Selector(self.match_labels, tuple(_requirement(rule) for rule in self.match_expressions))


def _requirement(rule: LabelSelectorRequirement) -> LabelRequirement:
    try:
        return LabelRequirement(rule.key, Operator(rule.operator), rule.values)
    except ValueError:
        options = ", ".join(Operator)
        raise ValueError(
            f"label selector, key {rule.key!r}: operator {rule.operator!r} is unknown; use one of {options}"
        ) from None


# ruff: noqa: D101 - the API reference documents its own structs


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
