"""What newcomers must know of a pod that has CPUs of its own, or a NUMA node to stay in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from corelane.workload import (
    Amounts,
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    Operator,
    PodCPUAffinity,
    Selector,
    TopologyLevel,
)

_NO_AMOUNTS: Final[Mapping[int, Amounts]] = MappingProxyType({})
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod with CPUs or a zone: its labels, and its rules about other pods nearby."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    exclusive_policy: ExclusivePolicy = ExclusivePolicy.NONE
    exclusive: Exclusivity | None = None
    avoids: tuple[PodCPUAffinity, ...] = ()
    """Its affinities that keep other pods away, pods admitted later included."""
    burst: int = 0
    """MilliCPU up to which it may burst within its zone: ConstrainedBurst's limit."""
    amounts: Mapping[int, Amounts] = field(default_factory=lambda: _NO_AMOUNTS)
    """As `PodRequest.numa_amounts`; no ledger has them."""


def plain(placed_pod: PlacedPod) -> dict[str, Any]:
    """Return the pod as JSON values, without empty fields."""
    exclusive = placed_pod.exclusive
    fields = {
        "namespace": placed_pod.namespace,
        "labels": dict(placed_pod.labels),
        "exclusivePolicy": placed_pod.exclusive_policy.value,
        "exclusive": exclusive and {"level": exclusive.level.value, "required": exclusive.required},
        "avoids": [_plain_affinity(one) for one in placed_pod.avoids],
        "burst": placed_pod.burst,
    }
    return {name: value for name, value in fields.items() if value or name == "namespace"}


def _plain_affinity(one: PodCPUAffinity) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "level": one.level.value,
        "labels": dict(one.others.labels),
        "required": one.required,
    }
    if one.others.expressions:
        fields["expressions"] = [_plain_requirement(rule) for rule in one.others.expressions]
    return fields


def _plain_requirement(rule: LabelRequirement) -> dict[str, Any]:
    return {"key": rule.key, "operator": rule.operator.value, "values": list(rule.values)}


def of_plain(value: Any) -> PlacedPod:
    """Return the pod of the fields of `plain`. Raises KeyError, TypeError, ValueError or AttributeError."""
    exclusive = value.get("exclusive")
    return PlacedPod(
        namespace=value["namespace"],
        labels=_labels(value.get("labels", {})),
        exclusive_policy=ExclusivePolicy(value.get("exclusivePolicy", "")),
        exclusive=exclusive and Exclusivity(TopologyLevel(exclusive["level"]), bool(exclusive["required"])),
        avoids=tuple(map(_affinity, value.get("avoids", []))),
        burst=int(value.get("burst", 0)),
    )


def _affinity(value: Any) -> PodCPUAffinity:
    others = Selector(_labels(value["labels"]), tuple(map(_requirement, value.get("expressions", []))))
    return PodCPUAffinity(
        avoid=True, level=TopologyLevel(value["level"]), others=others, required=bool(value["required"])
    )


def _requirement(value: Any) -> LabelRequirement:
    return LabelRequirement(str(value["key"]), Operator(value["operator"]), tuple(map(str, value["values"])))


def _labels(value: Any) -> Mapping[str, str]:
    return MappingProxyType({str(key): str(label) for key, label in value.items()})
