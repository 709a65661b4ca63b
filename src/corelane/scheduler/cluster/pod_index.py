"""How many pods of each node match a set of pods, and which nodes' pods have an affinity term.

Theory of operation. Pods are put into classes: namespace, being deleted or not, and labels, but only those
labels that some selector looks at (`label_keys`), so that replicas with names of their own in their labels
are of one class. A class knows the counts to which its pods add; a pod that comes or goes changes those at
its node's row. Counts are made when a pod to be placed asks for a set for the first time, from the classes
that match; the least used ones go. The other way round, affinity terms of pods on nodes are kept with the
rows of their pods, and found by a label that they name.

A label that is looked at for the first time tells pods apart that were of one class. 50,000 pods take 100 ms
and more, so they are put into their classes when a set is asked for that looks at the label, and with `steps`
in portions: a question that is not answered then raises `Unfinished`, and is asked again later. Meanwhile
each pod is in a class of the old kind or of the new one; sets that look at old labels only hold both alike.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.labels import Counts, PodSet, Term, Topology, holds
from corelane.scheduler.cluster.objects import ClusterObjects
from corelane.scheduler.cluster.pods import NO_FACTS, Affinities, PodInfo, is_disk

OWNER: Final = "\0controller"
"""A label that each pod of a controller is given here: the controller's UID."""
_OWNERS: Final = {"ReplicaSet", "StatefulSet", "ReplicationController"}
_MOST_COUNTS: Final = 1024


class Unfinished(Exception):  # noqa: N818 - the work is not done yet, which is no error
    """The steps were used up: ask the same again."""


class TermKind(Enum):
    """What a pod on a node has a term for."""

    REQUIRED = auto()
    ANTI = auto()
    PREFERRED = auto()
    PREFERRED_ANTI = auto()


K = TypeVar("K")
Owned: TypeAlias = tuple[TermKind, Term, int]
"""A term that pods on nodes have, and its weight."""


@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that all selectors match alike."""

    namespace: str
    terminating: bool
    labels: Mapping[str, str]
    rows: dict[int, int] = field(default_factory=dict)
    counts: list[Counts] = field(default_factory=list)
    """Those to which its pods add."""
    owned: list[tuple[Owned, Counts]] = field(default_factory=list)
    """The terms of pods on nodes that match the class."""
    owned_version: int = -1


class _Counted(Struct, gc=False):
    """One for each pod on a node: changed in place, and nothing for the garbage collector to walk."""

    info: PodInfo
    row: int
    of: PodClass


@dataclass(frozen=True, slots=True)
class _Query:
    """A pod counts if it is in all the sets."""

    sets: tuple[PodSet, ...]
    terminating: bool
    counts: Counts
    rest: list[PodClass]
    """Classes that are not counted yet; their pods are counted when their turn comes."""

    @property
    def by_namespace_labels(self) -> bool:
        return any(one.namespace_rules for one in self.sets)


class PodIndex:
    """See the theory of operation. Pods are counted at the row of their node."""

    def __init__(self, topology: Topology, objects: ClusterObjects) -> None:
        self.topology = topology
        self.label_keys: frozenset[str] = frozenset()
        """Label keys that some selector looks at."""
        self.steps: int | None = None
        """How many pods and classes questions may still go through; None for as many as it takes."""
        self._told_apart: frozenset[str] = frozenset()
        """Label keys by which all pods on nodes are told apart."""
        self._pending: list[str] = []
        """UIDs of pods that may not be told apart by `_pending_keys` yet."""
        self._pending_keys: frozenset[str] = frozenset()
        self.claims: dict[tuple[str, str], int] = {}
        """How many volumes of pods on nodes name the claim, by namespace and name."""
        self.ports: dict[tuple[int, str], dict[int, dict[str, int]]] = {}
        """Host ports of pods on nodes: port and protocol to row to address to number."""
        self.disks: dict[int, int] = {}
        """Number of pods with volumes that one pod of a node uses at a time, by row."""
        self._objects = objects
        self._pods: dict[str, _Counted] = {}
        self._classes: dict[tuple[str, bool, tuple[tuple[str, str], ...]], PodClass] = {}
        self._queries: OrderedDict[tuple[object, bool], _Query] = OrderedDict()
        self._owned: dict[Owned, Counts] = {}
        self._owned_by_pair: dict[tuple[str, str] | None, dict[Owned, Counts]] = {}
        self._owned_version = 0
        self._latest: tuple[Pod, frozenset[str], PodClass] | None = None
        """The pod that was asked about last, the keys looked at, and its class: one attempt asks often."""

    # Pods on nodes.

    def put(self, info: PodInfo, row: int) -> None:
        """Count a pod at a row, and no longer as it was before."""
        self.drop(info.uid)
        self._look_at(info.facts.affinities.keys)
        counted = self._pods[info.uid] = _Counted(info, row, self.class_of(info))
        self._add(counted, 1)

    def drop(self, uid: str) -> None:
        """Count a pod no longer."""
        if counted := self._pods.pop(uid, None):
            self._add(counted, -1)

    def _add(self, counted: _Counted, number: int) -> None:
        row, info, of = counted.row, counted.info, counted.of
        _count(of.rows, row, number)
        self._remove_if_empty(of)
        for counts in of.counts:
            counts.add(row, number)
        if info.facts is NO_FACTS:
            return
        for owned in _owned(info.facts.affinities):
            self._counts_of(owned).add(row, number)
        for port in info.facts.host_ports:
            rows = self.ports.setdefault((port.port, port.protocol), {})
            addresses = rows.setdefault(row, {})
            _count(addresses, port.address, number)
            if not addresses:
                del rows[row]
        if info.facts.volumes:
            if any(map(is_disk, info.pod.spec.volumes)):
                _count(self.disks, row, number)
            if number > 0:
                self._objects.uses.put(info, row)
            else:
                self._objects.uses.drop(info.uid)
        for name in info.facts.claims:
            _count(self.claims, (info.pod.metadata.namespace, name), number)

    def _remove_if_empty(self, of: PodClass) -> None:
        if not of.rows:
            self._latest = None
            self._classes.pop((of.namespace, of.terminating, tuple(of.labels.items())), None)

    def _counts_of(self, owned: Owned) -> Counts:
        counts = self._owned.get(owned)
        if counts is None:
            counts = self._owned[owned] = Counts()
            self._owned_by_pair.setdefault(owned[1].pods.pair, {})[owned] = counts
            self._owned_version += 1
            self._forget_unused(owned)
        return counts

    def _forget_unused(self, new: Owned) -> None:
        """Remove terms that no pod on a node has, once in a while."""
        if self._owned_version % _MOST_COUNTS:
            return
        used = {owned: counts for owned, counts in self._owned.items() if counts.by_row or owned == new}
        self._owned = used
        self._owned_by_pair = {}
        for owned, counts in used.items():
            self._owned_by_pair.setdefault(owned[1].pods.pair, {})[owned] = counts

    # Classes.

    def class_of(self, info: PodInfo) -> PodClass:
        """Return the class of a pod, on a node or to be placed."""
        latest = self._latest
        if latest is not None and latest[0] is info.pod and latest[1] is self.label_keys:
            return latest[2]
        of = self._class_of(info)
        self._latest = info.pod, self.label_keys, of
        return of

    def _class_of(self, info: PodInfo) -> PodClass:
        metadata = info.pod.metadata
        labels = labels_of(info) if OWNER in self.label_keys else metadata.labels
        pairs = tuple((key, labels[key]) for key in sorted(self.label_keys & labels.keys())) if labels else ()
        key = (metadata.namespace, bool(metadata.deletion_timestamp), pairs)
        of = self._classes.get(key)
        if of is None:
            of = self._classes[key] = PodClass(metadata.namespace, key[1], dict(pairs))
            of.counts = [query.counts for query in self._queries.values() if self._in(query, of)]
        return of

    def _in(self, query: _Query, of: PodClass) -> bool:
        if of.terminating and not query.terminating:
            return False
        return all(self._chosen(one, of) for one in query.sets)

    def _chosen(self, pods: PodSet, of: PodClass) -> bool:
        """As `_matches`, but of namespaces chosen by labels only existing ones count.

        Rules that hold without any label choose all namespaces: kube-scheduler 1.36 keeps the selector of a
        term of the pod to place beside the namespaces that it chose, and asks it about no labels.
        """
        if pods.namespace_rules and holds(pods.namespace_rules, {}):
            return holds(pods.rules, of.labels)
        if pods.namespace_rules and of.namespace not in self._objects.namespaces:
            return of.namespace in pods.namespaces and holds(pods.rules, of.labels)
        return self._matches(pods, of)

    def _matches(self, pods: PodSet, of: PodClass) -> bool:
        return pods.matches(of.namespace, self._objects.namespace_labels(of.namespace), of.labels)

    def _look_at(self, keys: frozenset[str]) -> None:
        """Let classes of pods that come from now on tell them apart by these label keys too."""
        if not keys <= self.label_keys:
            self.label_keys |= keys

    def _tell_apart(self, keys: frozenset[str]) -> None:
        """Put all pods into classes that tell them apart by these label keys. Raises Unfinished."""
        if keys <= self._told_apart:
            return
        if not keys <= self._pending_keys:
            self._look_at(keys)
            self._pending, self._pending_keys = list(self._pods), self.label_keys
        for key in [key for key, query in self._queries.items() if query.rest]:
            self._remove_query(key)  # Pods may leave a class that it has not counted for one that it has.
        new = tuple(self._pending_keys - self._told_apart)
        while self._pending:
            self.spend()
            uid = self._pending.pop()
            counted = self._pods.get(uid)
            if counted is not None:
                labels = labels_of(counted.info) if OWNER in new else counted.info.pod.metadata.labels
                if any(key in labels for key in new):
                    self._reclassify(uid, counted)
        self._told_apart = self._pending_keys

    def spend(self, steps: int = 1) -> None:
        """Take steps of the attempt's budget, of about 5 µs each. Raises Unfinished."""
        if self.steps is not None:
            if self.steps <= 0:
                raise Unfinished
            self.steps -= steps

    def _reclassify(self, uid: str, counted: _Counted) -> None:
        row, old, of = counted.row, counted.of, self._class_of(counted.info)
        if of is old:
            return
        _count(of.rows, row, 1)
        _count(old.rows, row, -1)
        self._remove_if_empty(old)
        counted.of = of

    def namespace_changed(self, name: str) -> None:
        """Forget what followed from the labels of a namespace."""
        stale = [key for key, query in self._queries.items() if query.by_namespace_labels]
        for key in stale:
            self._remove_query(key)
        for of in self._classes.values():
            if of.namespace == name:
                of.owned_version = -1

    # Questions of a pod to be placed.

    def matching(self, terms: tuple[Term, ...]) -> Counts:
        """Return the pods on nodes that match all the terms' sets.

        Of namespaces that are chosen by labels, only existing ones count.
        """
        return self._ask((terms, True), tuple(term.pods for term in terms), terminating=True)

    def matching_set(self, pods: PodSet) -> Counts:
        """Return the pods on nodes of the set, without those that are being deleted."""
        return self._ask((pods, False), (pods,), terminating=False)

    def owned(self, info: PodInfo) -> list[tuple[Owned, Counts]]:
        """Return the terms of pods on nodes that match this pod, with the rows of those pods."""
        of = self.class_of(info)
        if of.owned_version != self._owned_version:
            of.owned = list(self._find_owned(of))
            of.owned_version = self._owned_version
        if len(self._classes) > 2 * _MOST_COUNTS + len(self._pods):
            self._classes = {key: one for key, one in self._classes.items() if one.rows}
            self._latest = None
        return of.owned

    def in_all(self, terms: tuple[Term, ...], info: PodInfo) -> bool:
        """Return whether the pod is in all the terms' sets, as `matching` counts it."""
        self._look_at(frozenset().union(*(term.pods.keys for term in terms)))
        of = self.class_of(info)
        return all(self._chosen(term.pods, of) for term in terms)

    def has_in(self, term: Term, info: PodInfo) -> bool:
        """Return whether the pod is in the set of a term that a pod on a node has, as in `owned`."""
        metadata = info.pod.metadata
        labels = self._objects.namespace_labels(metadata.namespace)
        return term.pods.matches(metadata.namespace, labels, metadata.labels)

    def _find_owned(self, of: PodClass) -> Iterator[tuple[Owned, Counts]]:
        for pair in (None, *of.labels.items()):
            for owned, counts in self._owned_by_pair.get(pair, {}).items():
                if self._matches(owned[1].pods, of):
                    yield owned, counts

    def _ask(self, key: tuple[object, bool], sets: tuple[PodSet, ...], *, terminating: bool) -> Counts:
        """Return the counts of a query. Raises Unfinished."""
        query = self._queries.get(key)
        if query is None:
            self._tell_apart(frozenset().union(*(one.keys for one in sets)))
            query = _Query(sets, terminating, Counts(), list(self._classes.values()))
            self._queries[key] = query
            if len(self._queries) > _MOST_COUNTS:
                self._remove_query(next(iter(self._queries)))
        else:
            self._queries.move_to_end(key)
        while query.rest:
            self.spend()
            self._count(query, query.rest.pop())
        return query.counts

    def _count(self, query: _Query, of: PodClass) -> None:
        if self._in(query, of):
            of.counts.append(query.counts)
            for row, number in of.rows.items():
                query.counts.add(row, number)

    def _remove_query(self, key: tuple[object, bool]) -> None:
        counts = self._queries.pop(key).counts
        for of in self._classes.values():
            if any(one is counts for one in of.counts):
                of.counts = [one for one in of.counts if one is not counts]


def _count(numbers: dict[K, int], key: K, more: int) -> None:
    """Add to a number, which ends at 0."""
    number = numbers.get(key, 0) + more
    if number:
        numbers[key] = number
    else:
        del numbers[key]


def _owned(affinities: Affinities) -> Iterator[Owned]:
    for term in affinities.required:
        yield TermKind.REQUIRED, term, 1
    for term in affinities.anti:
        yield TermKind.ANTI, term, 1
    for term, weight in affinities.preferred:
        yield TermKind.PREFERRED, term, weight
    for term, weight in affinities.preferred_anti:
        yield TermKind.PREFERRED_ANTI, term, weight


def controller_of(info: PodInfo) -> str:
    """Return the UID of the ReplicaSet, StatefulSet or ReplicationController of a pod; "" without one."""
    for owner in info.pod.metadata.owner_references:
        if owner.controller and owner.kind in _OWNERS:
            return owner.uid
    return ""


def labels_of(info: PodInfo) -> Mapping[str, str]:
    """Return a pod's labels, with that of its controller."""
    labels = info.pod.metadata.labels
    uid = controller_of(info) if info.pod.metadata.owner_references else ""
    return {**labels, OWNER: uid} if uid else labels
