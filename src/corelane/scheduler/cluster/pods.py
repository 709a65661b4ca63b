"""A pod as the scheduler knows it, and its shape: all that decides where it fits, but names.

What it requires beside resources (`PodFacts`: host ports, affinity to other pods, spread, claims) is decoded
once for each distinct text; replicas share the result.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.pod import Container, Pod, Volume
from corelane.kube.selectors import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from corelane.kube.translate import TranslationError
from corelane.kube.volumes import may_be_limited
from corelane.node.ledger import Decision
from corelane.node.pools.classes import requests_exclusive_cpus
from corelane.scheduler.cluster.labels import PodSet, Rules, Term, rules_of
from corelane.workload import NUMAPolicy, PlacementSpec, SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS
from corelane.workload.request import Amounts, PodRequest
from corelane.workload.selectors import LabelRequirement, Operator

_CACHED: Final = 4096
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API's word for every address
_EVERY: Final = {"", ANY_ADDRESS}


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container takes."""

    port: int
    protocol: str
    address: str

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether both cannot be on one node; every address includes each one."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class Affinities:
    """Terms of pod affinity and anti-affinity; preferred ones with their weights."""

    required: tuple[Term, ...] = ()
    anti: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    preferred_anti: tuple[tuple[Term, int], ...] = ()
    keys: frozenset[str] = frozenset()
    """Label keys of pods that the terms look at."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint (KEP-895); rules of None match no pod."""

    max_skew: int
    topology_key: str
    hard: bool
    rules: Rules | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodFacts:
    """See the module; `problem` says which part could not be read."""

    host_ports: tuple[HostPort, ...] = ()
    affinities: Affinities = Affinities()
    spread: tuple[SpreadConstraint, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of the claims that its volumes name, without those of ephemeral volumes."""
    volumes: bool = False
    """Whether it has claims, ephemeral volumes, or disks that not every pod, or not every node, may use."""
    problem: str = ""


NO_AFFINITIES: Final = Affinities()
NO_FACTS: Final = PodFacts()


def pod_facts(pod: Pod) -> PodFacts:
    """Return the facts of a pod; the same object for all pods without any."""
    spec = pod.spec
    ports = tuple(host_ports(pod))
    volumes = any(map(is_restricted, spec.volumes))
    claims = tuple(
        one.persistent_volume_claim.claim_name for one in spec.volumes if one.persistent_volume_claim
    )
    raw_spread = bytes(spec.topology_spread_constraints)
    affinity = spec.affinity
    raw_affinities = (bytes(affinity.pod_affinity), bytes(affinity.pod_anti_affinity)) if affinity else _NONE
    if not (ports or volumes or raw_spread) and raw_affinities == _NONE:
        return NO_FACTS
    try:
        affinities = NO_AFFINITIES
        if raw_affinities != _NONE:
            own = _own_labels(pod, frozenset().union(*(_decoded(raw)[1] for raw in raw_affinities)))
            affinities = _interned(*raw_affinities, pod.metadata.namespace, own)
        return PodFacts(ports, affinities, _spread(raw_spread, pod) if raw_spread else (), claims, volumes)
    except (msgspec.MsgspecError, ValueError) as error:
        why = f"spec.affinity or spec.topologySpreadConstraints cannot be read: {error}"
        return PodFacts(ports, claims=claims, volumes=volumes, problem=why)


_NONE: Final = (b"", b"")


def is_restricted(volume: Volume) -> bool:
    """Return whether a volume may decide where its pod fits: a claim, an ephemeral one, or a disk."""
    return may_be_limited(volume) or is_disk(volume)


def is_disk(volume: Volume) -> bool:
    """Return whether a volume is a disk that one pod of a node uses at a time, unless all only read it."""
    disks = (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd)
    return any(disk is not None for disk in disks)


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """Yield the host ports of the containers that run all the time: not those of ordinary init containers.

    On the host's network, every port of a container is one; API servers store it so.
    """
    sidecars = (one for one in pod.spec.init_containers if one.ports and one.restart_policy == "Always")
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number > 0:
                address = ANY_ADDRESS if port.host_ip in _EVERY else port.host_ip
                yield HostPort(number, port.protocol or "TCP", address)


# Affinity.


@lru_cache(_CACHED)
def _decoded(raw: bytes) -> tuple[PodAffinity, frozenset[str]]:
    """An affinity or anti-affinity, and the label keys whose values it takes from the pod itself."""
    affinity = msgspec.json.decode(raw, type=PodAffinity | None) if raw else None
    if affinity is None:
        return PodAffinity(), frozenset()
    terms = (*affinity.required, *(one.pod_affinity_term for one in affinity.preferred))
    return affinity, frozenset(
        key for term in terms for key in (*term.match_label_keys, *term.mismatch_label_keys)
    )


@lru_cache(_CACHED)
def _interned(raw: bytes, raw_anti: bytes, namespace: str, own: tuple[tuple[str, str], ...]) -> Affinities:
    affinity, anti = _decoded(raw)[0], _decoded(raw_anti)[0]
    labels = dict(own)

    def terms(listed: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
        return tuple(_term(one, namespace, labels) for one in listed)

    def weighted(affinity: PodAffinity) -> tuple[tuple[Term, int], ...]:
        return tuple(
            (_term(one.pod_affinity_term, namespace, labels), one.weight) for one in affinity.preferred
        )

    required, required_anti = terms(affinity.required), terms(anti.required)
    preferred, preferred_anti = weighted(affinity), weighted(anti)
    every = (*required, *required_anti, *(term for term, _ in (*preferred, *preferred_anti)))
    keys = frozenset().union(*(term.pods.keys for term in every))
    return Affinities(required, required_anti, preferred, preferred_anti, keys)


def _term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> Term:
    extra = [
        LabelRequirement(key, operator, (labels[key],))
        for keys, operator in (
            (term.match_label_keys, Operator.IN),
            (term.mismatch_label_keys, Operator.NOT_IN),
        )
        for key in keys
        if key in labels
    ]
    namespaces = frozenset(term.namespaces)
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset({namespace})
    pods = PodSet(rules_of(term.label_selector, extra), namespaces, rules_of(term.namespace_selector))
    return Term.of(pods, term.topology_key)


def _own_labels(pod: Pod, keys: Iterable[str]) -> tuple[tuple[str, str], ...]:
    labels = pod.metadata.labels
    return tuple((key, labels[key]) for key in sorted(keys) if key in labels)


# Spread.


@lru_cache(_CACHED)
def _decoded_spread(raw: bytes) -> tuple[tuple[TopologySpreadConstraint, ...], frozenset[str]]:
    listed = msgspec.json.decode(raw, type=tuple[TopologySpreadConstraint, ...] | None) or ()
    return listed, frozenset(key for one in listed for key in one.match_label_keys)


def _spread(raw: bytes, pod: Pod) -> tuple[SpreadConstraint, ...]:
    return _interned_spread(raw, _own_labels(pod, _decoded_spread(raw)[1]))


@lru_cache(_CACHED)
def _interned_spread(raw: bytes, own: tuple[tuple[str, str], ...]) -> tuple[SpreadConstraint, ...]:
    labels = dict(own)
    return tuple(spread_constraint(one, labels) for one in _decoded_spread(raw)[0])


def spread_constraint(one: TopologySpreadConstraint, labels: Mapping[str, str]) -> SpreadConstraint:
    """Return a constraint, with the pod's `labels` for its matchLabelKeys. Raises ValueError."""
    extra = [
        LabelRequirement(key, Operator.IN, (labels[key],)) for key in one.match_label_keys if key in labels
    ]
    if one.when_unsatisfiable not in {"DoNotSchedule", "ScheduleAnyway"}:
        raise ValueError(
            f"whenUnsatisfiable {one.when_unsatisfiable!r} is unknown; use DoNotSchedule or ScheduleAnyway"
        )
    return SpreadConstraint(
        one.max_skew,
        one.topology_key,
        one.when_unsatisfiable == "DoNotSchedule",
        rules_of(one.label_selector, extra),
        1 if one.min_domains is None else one.min_domains,
        one.node_affinity_policy != "Ignore",
        one.node_taints_policy == "Honor",
    )


_NO_CPUS: Final[Mapping[str, CPUSet]] = MappingProxyType({})
_NO_ZONE_CPUS: Final[Mapping[int, int]] = MappingProxyType({})
_NO_NUMA_AMOUNTS: Final[Mapping[int, Amounts]] = MappingProxyType({})
_LABELS: Final = (keys.QOS_CLASS, keys.PRIORITY_CLASS)
_ANNOTATIONS: Final = (
    *(keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC, keys.EXCLUSIVE, keys.CPU_AFFINITY),
    *(keys.CORE_KIND, keys.CRANE_CPU_POLICY, keys.CRANE_AWARENESS),
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
        self.binds = request is not None and requests_exclusive_cpus(request)


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
            return cls(pod, shape, *translate.placement(pod), facts=facts)
        except TranslationError as error:
            return cls(pod, shape, invalid=str(error), facts=facts)

    def with_decision(self, decided: Decision) -> "PodInfo":
        """Return the pod with the CPUs and NUMA nodes decided."""
        cpus, zone_cpus, amounts = decided.assignments, decided.zone_cpus, decided.numa_amounts
        return PodInfo(self.pod, self.shape, cpus, decided.zone, zone_cpus, amounts, self.invalid, self.facts)

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
    return _variant(shape, tuple(seen.items()), labels=MappingProxyType(seen))


def with_defaults(shape: Shape, defaults: SchedulerDefaults) -> Shape:
    """Return the shape of pods under a profile with these defaults."""
    if defaults is NO_DEFAULTS or defaults == NO_DEFAULTS or shape.request is None:
        return shape
    return _variant(shape, defaults, placement_spec=replace(shape.request.placement_spec, defaults=defaults))


def _variant(shape: Shape, what: Hashable, **changes: Any) -> Shape:
    """The shape with changes of its request, which `what` tells from others."""
    key = shape.id.to_bytes(8, "big"), what
    variant = _shapes.get(key)
    if variant is None:
        assert shape.request is not None
        request = replace(shape.request, **changes)
        variant = _shapes[key] = Shape(next(_ids), request, shape.requests, scored=shape.scored)
    return variant


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
    return one.name, one.image, one.resources, one.restart_policy, one.ports


def _chosen(values: Mapping[str, str], names: Iterable[str]) -> list[str | None] | None:
    return [values.get(name) for name in names] if values else None
