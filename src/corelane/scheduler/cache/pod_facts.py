"""What a pod requires beside resources: host ports, affinity to other pods, topology spread, claims.

Raw parts are decoded once for each distinct text; replicas share the result.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from corelane.kube.csi_migration import may_be_limited
from corelane.kube.pod import Pod
from corelane.kube.pod_affinity import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from corelane.kube.pod_volumes import Volume
from corelane.scheduler.cache.label_rules import PodSet, Rules, Term, rules_of
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
        affinities = _affinities(*raw_affinities, pod) if raw_affinities != _NONE else NO_AFFINITIES
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


def _affinities(raw: bytes, raw_anti: bytes, pod: Pod) -> Affinities:
    keys = _decoded(raw)[1] | _decoded(raw_anti)[1]
    return _interned(raw, raw_anti, pod.metadata.namespace, _own_labels(pod, keys))


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
