"""A pod as the scheduler knows it, and its shape: all that decides where it fits, but names."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.pod import Container, Pod
from corelane.kube.translate import TranslationError
from corelane.node import Decision, PoolOptions
from corelane.node.pools.classes import pod_class
from corelane.reasons import Refusal
from corelane.scheduler.cache.pod_facts import NO_FACTS, PodFacts, pod_facts
from corelane.workload import Amounts, NUMAPolicy, PlacementSpec, PodRequest, SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

_NO_CPUS: Final[Mapping[str, CPUSet]] = MappingProxyType({})
_NO_ZONE_CPUS: Final[Mapping[int, int]] = MappingProxyType({})
_NO_NUMA_AMOUNTS: Final[Mapping[int, Amounts]] = MappingProxyType({})
_LABELS: Final = (keys.QOS_CLASS, keys.PRIORITY_CLASS)
_ANNOTATIONS: Final = (
    keys.RESOURCE_SPEC,
    keys.NUMA_TOPOLOGY_SPEC,
    keys.EXCLUSIVE,
    keys.CPU_AFFINITY,
    keys.CORE_KIND,
    keys.CRANE_CPU_POLICY,
    keys.CRANE_AWARENESS,
)
_encoder: Final = msgspec.json.Encoder(order="deterministic")
_ids: Final = count(1)
_MOST: Final = 1 << 52
"""Larger requests fit nowhere, as this one; columns hold sums of it."""
_WITHOUT_REQUEST: Final = MappingProxyType({"cpu": 100, "memory": 200 << 20})
"""What a container without a request counts for scores (upstream: pkg/scheduler/util/pod_resources.go)."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Shape:
    """Equal for pods that every node treats alike: request, selectors, tolerations, images, host ports.

    Not in it are UID, name, proposal, volumes, affinity to other pods and spread; labels as far as pod CPU
    affinities of the cluster look at them. `id` is never used again for another shape.
    """

    id: int
    request: PodRequest | None
    """Without UID, name and proposal; None where the pod is invalid, and `problem` says why."""
    requests: Mapping[str, int]
    problem: str = ""
    scored: tuple[int, int] = (0, 0)
    """MilliCPU and bytes of memory that count for scores, also of containers without requests."""
    milli: int = field(init=False)
    """MilliCPU that a node's ledger counts for such a pod."""

    looks_at_others: bool = field(init=False)
    """Whether such pods must be judged on who has which CPUs, not only on which are taken."""
    exclusive_cpus: int = field(init=False)
    """Exclusive CPUs of all containers together, under the static policy."""
    binds: bool = field(init=False)
    """Whether pods of it request exclusive CPUs; the node's settings are not considered."""

    def __post_init__(self) -> None:
        request = self.request
        self.milli = min(request.cpu_request, _MOST) if request else 0
        self.looks_at_others = request is not None and _has_rules(request.placement_spec)
        self.exclusive_cpus = sum(map(request.exclusive_cpus, request.containers)) if request else 0
        self.binds = request is not None and (bool(self.exclusive_cpus) or _is_bound(request))


def _is_bound(request: PodRequest) -> bool:
    try:
        return pod_class(request, PoolOptions()).bound
    except Refusal:
        return True


def _has_rules(spec: PlacementSpec) -> bool:
    policies = spec.exclusive_policy, spec.defaults.exclusive_policy
    rules = spec.exclusive or spec.affinities or any(policies) or spec.defaults.numa
    return bool(rules or spec.numa not in (None, NUMAPolicy.NONE) or spec.numa_exclusive is not None)


_shapes: Final[WeakValueDictionary[tuple[bytes, Any], Shape]] = WeakValueDictionary()
"""Shapes of pods that are alive: interned as strings are, so that equal ones are one object."""


class PodInfo(Struct, frozen=True):
    """A pod, its shape, and the CPUs and NUMA nodes proposed for it once it has a node."""

    pod: Pod
    shape: Shape
    """Without labels."""
    proposal: Mapping[str, CPUSet] = _NO_CPUS
    zone: CPUSet | None = None
    zone_cpus: Mapping[int, int] = _NO_ZONE_CPUS
    """As `PodRequest.zone_cpus`."""
    numa_amounts: Mapping[int, Amounts] = _NO_NUMA_AMOUNTS
    """As `PodRequest.numa_amounts`."""
    invalid: str = ""
    """Why the proposal cannot be read."""
    facts: PodFacts = NO_FACTS

    @classmethod
    def of(cls, pod: Pod) -> "PodInfo":
        shape, facts = shape_of(pod), pod_facts(pod)
        if not pod.spec.node_name or shape.request is None:
            return cls(pod, shape, facts=facts)
        try:
            request = translate.request(pod)
        except TranslationError as error:
            return cls(pod, shape, invalid=str(error), facts=facts)
        amounts = request.numa_amounts
        return cls(pod, shape, request.proposal, request.zone, request.zone_cpus, amounts, facts=facts)

    def with_decision(self, decided: Decision) -> "PodInfo":
        """Return the pod with the CPUs and NUMA nodes decided."""
        cpus, zone_cpus, amounts = decided.assignments, decided.zone_cpus, decided.numa_amounts
        return PodInfo(self.pod, self.shape, cpus, decided.zone, zone_cpus, amounts, self.invalid, self.facts)

    def with_pod(self, pod: Pod) -> "PodInfo":
        """Return the same for another version of the pod."""
        return structs.replace(self, pod=pod)

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def problem(self) -> str:
        """Why the request is invalid, "" for a valid one."""
        return self.shape.problem or self.invalid or self.facts.problem

    @property
    def plain(self) -> bool:
        """Whether it has nothing that decides where it fits beside its shape and labels."""
        spec = self.pod.spec
        return self.facts is NO_FACTS and not (spec.node_name or spec.resource_claims or self.invalid)

    @property
    def unreadable(self) -> str:
        """Why the CPUs of a bound pod cannot be read from it, and no former version said them."""
        if not self.pod.spec.node_name or self.proposal or self.zone is not None:
            return ""
        return self.shape.problem or self.invalid

    def with_former(self, old: "PodInfo") -> "PodInfo":
        """Return a bound pod that can no longer be read with the request and CPUs of its former version."""
        if not self.unreadable or old.shape.request is None or old.unreadable:
            return self
        return structs.replace(old, pod=self.pod, facts=self.facts)

    @property
    def request(self) -> PodRequest | None:
        """What the pod requests, without CPUs where these cannot be read; None where it is invalid.

        Made when it is read.
        """
        if self.shape.request is None:
            return None
        meta = self.pod.metadata
        return replace(
            self.shape.request,
            uid=meta.uid,
            name=meta.name,
            labels=meta.labels,
            proposal=self.proposal,
            zone=self.zone,
            zone_cpus=self.zone_cpus,
            numa_amounts=self.numa_amounts,
        )

    @property
    def requests(self) -> Mapping[str, int]:
        """Resource to amount: CPU in milliCPU, others in whole units."""
        return self.shape.requests

    @property
    def exclusive_cpus(self) -> int:
        """Exclusive CPUs of all containers together, under the static policy."""
        return self.shape.exclusive_cpus

    @property
    def binds(self) -> bool:
        """Whether the pod requests exclusive CPUs; the node's settings are not considered."""
        return self.shape.binds


def shape_of(pod: Pod) -> Shape:
    """Return the pod's shape, without labels."""
    key = _key(pod), None
    shape = _shapes.get(key)
    if shape is None:
        shape = _shapes[key] = _made(pod)
    return shape


def _made(pod: Pod) -> Shape:
    try:
        amounts = translate.requests(pod)
    except TranslationError as error:
        return Shape(next(_ids), None, {}, str(error))
    requests = {name: min(amount, _MOST) for name, amount in amounts.items()}
    counted = translate.requests(pod, _WITHOUT_REQUEST)
    scored = min(counted.get("cpu", 0), _MOST), min(counted.get("memory", 0), _MOST)
    unplaced = structs.replace(pod, spec=structs.replace(pod.spec, node_name=""))
    try:
        request = translate.request(unplaced)
    except TranslationError as error:
        return Shape(next(_ids), None, requests, str(error), scored)
    return Shape(next(_ids), replace(request, uid="", name="", labels={}), requests, scored=scored)


def with_labels(shape: Shape, labels: Mapping[str, str], looked_at: Collection[str]) -> Shape:
    """Return the shape of pods that also have those of these labels that are looked at."""
    seen = {key: labels[key] for key in sorted(looked_at) if key in labels}
    if not seen or shape.request is None:
        return shape
    key = shape.id.to_bytes(8, "big"), tuple(seen.items())
    found = _shapes.get(key)
    if found is None:
        request = replace(shape.request, labels=MappingProxyType(seen))
        found = _shapes[key] = Shape(next(_ids), request, shape.requests, scored=shape.scored)
    return found


def with_defaults(shape: Shape, defaults: SchedulerDefaults) -> Shape:
    """Return the shape of pods under a profile with these defaults."""
    if defaults is NO_DEFAULTS or defaults == NO_DEFAULTS or shape.request is None:
        return shape
    key = shape.id.to_bytes(8, "big"), defaults
    found = _shapes.get(key)
    if found is None:
        spec = replace(shape.request.placement_spec, defaults=defaults)
        request = replace(shape.request, placement_spec=spec)
        found = _shapes[key] = Shape(next(_ids), request, shape.requests, scored=shape.scored)
    return found


def _key(pod: Pod) -> bytes:
    spec, meta = pod.spec, pod.metadata
    return _encoder.encode(
        (
            meta.namespace,
            [_container_key(one) for one in spec.containers],
            [_container_key(one) for one in spec.init_containers],
            spec.resources,
            spec.overhead,
            spec.priority // 1000,
            spec.host_network,
            spec.node_selector,
            spec.affinity and spec.affinity.node_affinity,
            spec.tolerations,
            _chosen(meta.labels, _LABELS),
            _chosen(meta.annotations, _ANNOTATIONS),
            pod.status.qos_class,
            translate.resized(pod),
        )
    )


def _container_key(one: Container) -> tuple[Any, ...]:
    return one.name, one.image, one.resources, one.restart_policy, getattr(one, "ports", ())


def _chosen(values: Mapping[str, str], names: Iterable[str]) -> list[str | None] | None:
    return [values.get(name) for name in names] if values else None
