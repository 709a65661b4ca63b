"""Read a pod's labels and annotations about CPUs: its owner's requests, also softened, and a proposal.

Requests are Koordinator's labels and annotations, gocrane's, and corelane's own; together they are one
`PlacementSpec`.

Koordinator's scheduler writes the bind policy that it chose back into `resource-spec`, and so does corelane.
To keep that policy from becoming a request of the pod's, corelane adds the member `corelane.io/resolved` with
the text that stood there before; reading restores the text while the written policy still stands there.

A proposal is Koordinator's `resource-status`, one CPU set for all containers, or
`corelane.io/container-cpusets`, one CPU set for each container, which wins; containers that it leaves out run
in the shared pool.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.keys import CONTAINER_CPUSETS, RESOURCE_STATUS
from corelane.kube.pod import Pod
from corelane.kube.translate.fields import (
    TranslationError,
    annotation,
    boolean,
    choice,
    cpus,
    items,
    json_list,
    json_object,
    label,
    member,
    numa_node,
    quantity_text,
    required_choice,
    socket_and_node,
)
from corelane.workload import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    NUMAPolicy,
    NUMAStrategy,
    Operator,
    PlacementSpec,
    PodCPUAffinity,
    PodQOS,
    Selector,
    TopologyLevel,
)

REQUIRED: Final = "requiredCPUBindPolicy"
PREFERRED: Final = "preferredCPUBindPolicy"
EXCLUSIVE: Final = "preferredCPUExclusivePolicy"
RESOURCE_SPEC_MEMBERS: Final = (REQUIRED, PREFERRED, EXCLUSIVE)
OPEN_POLICIES: Final = (None, "", "Default")
"""Values of a bind policy that leave the choice to the scheduler."""
RESOLVED: Final = "corelane.io/resolved"
"""Member of `resource-spec`: member name to the pod's own text, "" for none, and `to`, the policy written."""

_BANDS: Final = {9: Band.PROD, 7: Band.MID, 5: Band.BATCH, 3: Band.FREE}
"""Thousands of a priority to its band."""
_CORE_KINDS: Final = ("P", "M", "E")
_NO_SPEC: Final = PlacementSpec()
_LONGEST_AFFINITY: Final = 4096
"""Characters of all terms. Nodes publish the terms, in annotations of limited size."""


def placement_spec(pod: Pod) -> PlacementSpec:
    """Return what the pod's labels and annotations request for its CPUs.

    Raises TranslationError for the first invalid one.
    """
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    members: dict[str, Any] = {"band": _BANDS.get(pod.spec.priority // 1000)}
    for key, reader in _LABELS.items():
        if key in labels:
            members |= reader(label(key), labels[key])
    for key, reader in _ANNOTATIONS.items():
        if key in annotations:
            members |= reader(annotation(key), annotations[key])
    return PlacementSpec(**members)


def _resource_spec(path: str, text: str) -> dict[str, Any]:
    """A required bind policy hides the preferred one, as upstream."""
    spec = own_resource_spec(path, text)
    required, preferred = (
        choice(f"{path}.{name}", spec[name], BindPolicy, ("", "Default")) for name in (REQUIRED, PREFERRED)
    )
    policy = choice(f"{path}.{EXCLUSIVE}", spec[EXCLUSIVE], ExclusivePolicy, ("", "Default", "None"))
    return {
        "bind": required if spec[REQUIRED] else preferred,
        "bind_required": bool(spec[REQUIRED]),
        "exclusive_policy": ExclusivePolicy.NONE if spec[EXCLUSIVE] == "None" else policy,
    }


def own_resource_spec(path: str, text: str) -> Mapping[str, Any]:
    """Return the policies that the pod's owner wrote, without blanks. Raises TranslationError."""
    spec = unresolved_resource_spec(path, text)
    return {name: stripped(spec.get(name)) for name in RESOURCE_SPEC_MEMBERS}


def unresolved_resource_spec(path: str, text: str) -> dict[str, Any]:
    """Return all members but `RESOLVED`, with the pod's own text where a scheduler filled in a policy."""
    spec = dict(json_object(path, text, RESOURCE_SPEC_MEMBERS))
    own = member(f"{path}.{RESOLVED}", spec.pop(RESOLVED, None), RESOURCE_SPEC_MEMBERS)
    for name in own.keys() & spec.keys() & {REQUIRED, PREFERRED}:
        if spec[name] == own.get("to") and own[name] in OPEN_POLICIES:
            del spec[name]
            spec |= {name: own[name]} if own[name] else {}
    return spec


def stripped(value: Any) -> Any:
    """Return a text without surrounding blanks, and any other value as it is."""
    return value.strip() if isinstance(value, str) else value


def _numa_spec(path: str, text: str) -> dict[str, Any]:
    names = ("numaTopologyPolicy", "singleNUMANodeExclusive", "numaAllocateStrategy")
    spec = json_object(path, text, names)
    exclusive = spec.get("singleNUMANodeExclusive")
    if exclusive not in (None, "", "Required", "Preferred"):
        raise TranslationError(f"{path}.singleNUMANodeExclusive", exclusive, "use Required or Preferred")
    own = stripped(spec.get("numaTopologyPolicy"))
    policy = choice(f"{path}.numaTopologyPolicy", own, NUMAPolicy, ("", "None"))
    return {
        "numa": NUMAPolicy.NONE if own == "None" else policy,
        "numa_exclusive": exclusive == "Required" if exclusive else None,
        "strategy": choice(f"{path}.numaAllocateStrategy", spec.get("numaAllocateStrategy"), NUMAStrategy),
    }


def _core_kind(path: str, text: str) -> dict[str, Any]:
    if text.strip() not in ("", *_CORE_KINDS):
        raise TranslationError(path, text, "use P, M or E")
    return {"core_kind": text.strip() or None}


# Which other pods' exclusive CPUs may be near: `corelane.io/exclusive` and `corelane.io/cpu-affinity`.


def _exclusivity(path: str, text: str) -> dict[str, Any]:
    spec = json_object(path, text, ("level", "required"))
    if not spec:
        return {"exclusive": None}
    level = required_choice(f"{path}.level", spec.get("level"), TopologyLevel)
    return {"exclusive": Exclusivity(level, _is_required(path, spec))}


def _affinities(path: str, text: str) -> dict[str, Any]:
    if len(text) > _LONGEST_AFFINITY:
        why = f"{len(text)} characters are more than {_LONGEST_AFFINITY}: use fewer terms, or common labels"
        raise TranslationError(path, text, why)
    return {"affinities": tuple(_affinity(where, term) for where, term in items(path, json_list(path, text)))}


def _is_required(path: str, spec: Mapping[str, Any]) -> bool:
    return bool(boolean(f"{path}.required", spec.get("required")))


def _affinity(path: str, value: Any) -> PodCPUAffinity:
    term = member(path, value, ("avoid", "prefer", "level", "required"))
    present = [name for name in ("avoid", "prefer") if term.get(name) is not None]
    if len(present) != 1:
        raise TranslationError(path, dict(term), 'must have either "avoid" or "prefer", a label selector')
    selector = _selector(f"{path}.{present[0]}", term[present[0]])
    level = required_choice(f"{path}.level", term.get("level"), TopologyLevel)
    return PodCPUAffinity(present[0] == "avoid", level, selector, _is_required(path, term))


def _selector(path: str, value: Any) -> Selector:
    """Kubernetes' LabelSelector; an unknown member, which could select unintended pods, is an error."""
    names = ("matchLabels", "matchExpressions")
    selector = member(path, value, names)
    if unknown := sorted(selector.keys() - set(names)):
        raise TranslationError(path, value, f"{unknown[0]} is unknown: use {' or '.join(names)}")
    labels = member(f"{path}.matchLabels", selector.get("matchLabels"))
    if not all(isinstance(text, str) for text in labels.values()):
        raise TranslationError(f"{path}.matchLabels", dict(labels), "values must be strings")
    rules = items(f"{path}.matchExpressions", selector.get("matchExpressions"))
    return Selector(labels, tuple(_requirement(where, rule) for where, rule in rules))


def _requirement(path: str, value: Any) -> LabelRequirement:
    rule = member(path, value, ("key", "operator", "values"))
    key = rule.get("key")
    if not isinstance(key, str) or not key:
        raise TranslationError(f"{path}.key", key, "must be the key of a label")
    operator = required_choice(f"{path}.operator", rule.get("operator"), Operator)
    path, value = f"{path}.values", rule.get("values")
    values = tuple(text for _, text in items(path, value))
    if not all(isinstance(text, str) for text in values):
        raise TranslationError(path, value, "must be strings")
    if operator.compares and not values:
        raise TranslationError(path, value, f"must have at least one for {operator}")
    if values and not operator.compares:
        raise TranslationError(path, value, f"must be empty for {operator}")
    return LabelRequirement(key, operator, values)


_Reader: TypeAlias = Callable[[str, str], dict[str, Any]]
_LABELS: Final[Mapping[str, _Reader]] = {
    keys.QOS_CLASS: lambda path, text: {"qos": choice(path, text, PodQOS)},
    keys.PRIORITY_CLASS: lambda path, text: {"band": choice(path, text, Band)},
}
_ANNOTATIONS: Final[Mapping[str, _Reader]] = {
    keys.RESOURCE_SPEC: _resource_spec,
    keys.NUMA_TOPOLOGY_SPEC: _numa_spec,
    keys.EXCLUSIVE: _exclusivity,
    keys.CPU_AFFINITY: _affinities,
    keys.CORE_KIND: _core_kind,
    keys.CRANE_CPU_POLICY: lambda path, text: {"cpu_policy": choice(path, text, CPUPolicy)},
    keys.CRANE_AWARENESS: lambda path, text: {"topology_aware": boolean(path, text or None)},
}


# Proposals.


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Koordinator's `resource-status`: what a scheduler decided for a pod."""

    cpus: CPUSet = field(default_factory=CPUSet)
    """CPUs of every container."""
    amounts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """NUMA node to resource to quantity, as Kubernetes writes them."""
    pools: tuple[tuple[int, int], ...] = ()
    """Sockets and NUMA nodes in whose part of the shared pool an LS pod runs."""

    @property
    def zone(self) -> CPUSet | None:
        """NUMA nodes in whose pools a pod without exclusive CPUs runs; None for all nodes.

        The proposal's `cpuSharedPools`, else the nodes that upstream's agent takes: those in
        `numaNodeResources` with CPUs.
        """
        nodes = {node for _, node in self.pools} or {
            node
            for node, amounts in self.amounts.items()
            if any(quantity.milli(amounts.get(name, "0")) > 0 for name in ("cpu", "kubernetes.io/batch-cpu"))
        }
        return CPUSet(nodes) if nodes and not self.cpus else None


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """Return the `resource-status`; all its members are optional. Raises TranslationError."""
    return _resource_status(annotations.get(RESOURCE_STATUS, ""))


@lru_cache(1024)
def _resource_status(text: str) -> ResourceStatus:
    """Read three times of every bound pod, and alike on alike nodes."""
    where = annotation(RESOURCE_STATUS)
    names = ("cpuset", "numaNodeResources", "cpuSharedPools")
    status = json_object(where, text, names)
    amounts = items(f"{where}.numaNodeResources", status.get("numaNodeResources"))
    pools = items(f"{where}.cpuSharedPools", status.get("cpuSharedPools"))
    return ResourceStatus(
        cpus(f"{where}.cpuset", status.get("cpuset")),
        dict(_amounts(path, part) for path, part in amounts),
        tuple(socket_and_node(path, member(path, part, ("socket", "node"))) for path, part in pools),
    )


def _amounts(where: str, value: Any) -> tuple[int, dict[str, str]]:
    part = member(where, value, ("node", "resources"))
    resources = member(f"{where}.resources", part.get("resources"))
    return numa_node(f"{where}.node", part.get("node")), {
        name: quantity_text(f"{where}.resources.{name}", amount)
        for name, amount in resources.items()
        if amount is not None
    }


def proposed_cpus(annotations: Mapping[str, str], containers: Collection[str]) -> dict[str, CPUSet]:
    """Return container name to its CPUs, as recorded; empty without a record.

    Raises TranslationError for an invalid annotation, or one that names a container the pod does not have.
    """
    if annotations.get(CONTAINER_CPUSETS):
        where, text = annotation(CONTAINER_CPUSETS), annotations[CONTAINER_CPUSETS]
        sets = {name: cpus(f"{where}.{name}", value) for name, value in json_object(where, text).items()}
        if unknown := [name for name in sets if name not in containers]:
            raise TranslationError(where, text, f"the pod has no container {unknown[0]!r}")
        return {name: own for name, own in sets.items() if own}
    if annotations.get(RESOURCE_STATUS):
        common = resource_status(annotations).cpus
        return dict.fromkeys(containers, common) if common else {}
    return {}


def proposed_zone(annotations: Mapping[str, str]) -> CPUSet | None:
    """Return the NUMA nodes in whose pools the pod's containers without CPUs run; None for all nodes.

    Raises TranslationError.
    """
    return resource_status(annotations).zone if annotations.get(RESOURCE_STATUS) else None


def recorded_cpus(
    annotations: Mapping[str, str], containers: Collection[str]
) -> tuple[dict[str, CPUSet], CPUSet | None] | None:
    """Return what is recorded: as `proposed_cpus` and `proposed_zone`; None for an invalid record."""
    try:
        return proposed_cpus(annotations, containers), proposed_zone(annotations)
    except TranslationError:
        return None


def recorded_amounts(annotations: Mapping[str, str]) -> Mapping[int, Mapping[str, int]]:
    """Return NUMA node to the pod's amounts there (`numaNodeResources`): milliCPU, others in units.

    Raises TranslationError.
    """
    if not annotations.get(RESOURCE_STATUS):
        return {}
    units = {"cpu": quantity.milli}
    return {
        node: {name: units.get(name, quantity.value)(text) for name, text in amounts.items()}
        for node, amounts in resource_status(annotations).amounts.items()
    }


_STRICT: Final = ("Restricted", "SingleNUMANode")


def softened(pod: Pod) -> Iterator[tuple[str, str, Pod]]:
    """Yield the annotation, the requirement in it, and the pod with it as a preference.

    Nothing for an annotation that is not valid.
    """
    for key, soften in _SOFTENERS.items():
        if key not in pod.metadata.annotations:
            continue
        try:
            changes = list(soften(annotation(key), pod.metadata.annotations[key]))
        except TranslationError:
            continue
        for what, text in changes:
            annotations = {**pod.metadata.annotations, key: text}
            if not text:
                del annotations[key]
            yield key, what, replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _softer_resource_spec(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    if required := spec.pop(REQUIRED, None):
        yield f"{REQUIRED} {required}", _json({**spec, PREFERRED: required})


def _softer_numa_spec(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    policy = spec.get("numaTopologyPolicy")
    if policy in _STRICT:
        yield f"numaTopologyPolicy {policy}", _json({**spec, "numaTopologyPolicy": "BestEffort"})
    if spec.get("singleNUMANodeExclusive") == "Required":
        yield "singleNUMANodeExclusive", _json({**spec, "singleNUMANodeExclusive": "Preferred"})


def _softer_exclusive(path: str, text: str) -> Iterator[tuple[str, str]]:
    spec = dict(json_object(path, text))
    if spec.get("required"):
        yield f"level {spec.get('level')}", _json({**spec, "required": False})


def _softer_affinity(path: str, text: str) -> Iterator[tuple[str, str]]:
    terms = json_list(path, text)
    for i, term in enumerate(terms):
        if isinstance(term, Mapping) and term.get("required"):
            changed = [*terms[:i], {**term, "required": False}, *terms[i + 1 :]]
            yield f"term {i}", _json(changed)


def _without_core_kind(_path: str, text: str) -> Iterator[tuple[str, str]]:
    if text.strip():
        yield f"core kind {text.strip()}", ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SOFTENERS: Final[Mapping[str, Callable[[str, str], Iterator[tuple[str, str]]]]] = {
    keys.RESOURCE_SPEC: _softer_resource_spec,
    keys.NUMA_TOPOLOGY_SPEC: _softer_numa_spec,
    keys.EXCLUSIVE: _softer_exclusive,
    keys.CPU_AFFINITY: _softer_affinity,
    keys.CORE_KIND: _without_core_kind,
}
