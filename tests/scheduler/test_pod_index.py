"""Counts of pods by what selectors mean, against counting all pods each time."""

import json
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube.objects import Namespace, Node
from corelane.kube.pod import Pod
from corelane.scheduler.cluster.labels import holds, in_namespace
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pod_index import Unfinished
from corelane.scheduler.cluster.pods import PodInfo, pod_facts

_NODES = ("n0", "n1", "n2", "n3")
_NAMESPACES = ("default", "blue")
_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"]))
_SELECTOR = st.one_of(
    st.builds(lambda labels: {"matchLabels": labels}, _LABELS),
    st.sampled_from(
        [
            None,
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        ]
    ),
)
_TERM = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(["zone", "host"])},
    optional={
        "labelSelector": _SELECTOR,
        "namespaces": st.lists(st.sampled_from(_NAMESPACES), max_size=2),
        "namespaceSelector": _SELECTOR,
        "matchLabelKeys": st.just(["tier"]),
    },
)


def _terms(name: str, listed: list[object]) -> dict[str, object]:
    return {name: {"requiredDuringSchedulingIgnoredDuringExecution": listed}} if listed else {}


@st.composite
def pods(draw: st.DrawFn, uid: str = "") -> Pod:
    affinity = _terms("podAffinity", draw(st.lists(_TERM, max_size=2)))
    affinity |= _terms("podAntiAffinity", draw(st.lists(_TERM, max_size=2)))
    metadata = {
        "name": "p",
        "namespace": draw(st.sampled_from(_NAMESPACES)),
        "uid": uid or draw(st.sampled_from("uvwxyz")),
        "labels": draw(_LABELS),
        "deletionTimestamp": draw(st.sampled_from(["", "", "2026-01-01T00:00:00Z"])),
    }
    body = {"metadata": metadata, "spec": {"affinity": affinity}}
    return msgspec.json.decode(json.dumps(body), type=Pod)


_STEPS = st.one_of(
    st.tuples(st.just("put"), pods(), st.sampled_from(_NODES)),
    st.tuples(st.just("drop"), st.sampled_from("uvwxyz"), st.none()),
    st.tuples(st.just("node"), st.sampled_from(_NODES), st.one_of(st.none(), _LABELS)),
    st.tuples(st.just("namespace"), st.sampled_from(_NAMESPACES), st.one_of(st.none(), _LABELS)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_STEPS, max_size=25), st.lists(pods("new"), min_size=1, max_size=3))
def test_counts_equal_those_of_looking_at_every_pod(steps: list, askers: list[Pod]) -> None:
    cache, placed = NodeCache(), {}
    for what, one, other in steps:
        _take(cache, placed, what, one, other)
        for asker in askers:
            _check(cache, placed, asker)


def _take(cache: NodeCache, placed: dict[str, tuple[Pod, str]], what: str, one: Any, other: Any) -> None:
    labelled = {"metadata": {"name": one, "labels": other}}
    if what == "put":
        cache.put_pod(other, PodInfo.of(one))
        placed[one.metadata.uid] = (one, other)
    elif what == "drop":
        cache.drop_pod(one)
        placed.pop(one, None)
    elif what == "node":
        cache.put_node(one, None if other is None else msgspec.convert(labelled, Node))
    elif cache.objects.put_namespace(one, None if other is None else msgspec.convert(labelled, Namespace)):
        cache.index.namespace_changed(one)


def _check(cache: NodeCache, placed: dict[str, tuple[Pod, str]], asker: Pod) -> None:
    rows = {node: cache.get(node).row for _, node in placed.values()}
    mine = pod_facts(asker).affinities

    def chosen(pods, pod: Pod) -> bool:
        namespace = pod.metadata.namespace
        by_labels = holds(pods.namespace_rules, {}) or (
            namespace in cache.objects.namespaces
            and holds(pods.namespace_rules, cache.objects.namespace_labels(namespace))
        )
        return (namespace in pods.namespaces or by_labels) and holds(pods.rules, pod.metadata.labels)

    if mine.required:
        expected = Counter(
            rows[node] for pod, node in placed.values() if all(chosen(t.pods, pod) for t in mine.required)
        )
        assert cache.index.matching(mine.required).by_row == expected
    own = in_namespace(asker.metadata.namespace, mine.anti[0].pods.rules if mine.anti else ())
    expected = Counter(
        rows[node]
        for pod, node in placed.values()
        if not pod.metadata.deletion_timestamp
        and pod.metadata.namespace == asker.metadata.namespace
        and holds(own.rules, pod.metadata.labels)
    )
    assert cache.index.matching_set(own).by_row == expected
    owned = Counter()
    labels = cache.objects.namespace_labels(asker.metadata.namespace)
    for pod, node in placed.values():
        for term in pod_facts(pod).affinities.anti:
            if term.pods.matches(asker.metadata.namespace, labels, asker.metadata.labels):
                owned[term, rows[node]] += 1
    found = Counter()
    for (kind, term, _), counts in cache.index.owned(PodInfo.of(asker)):
        if kind.name == "ANTI":
            found.update({(term, row): number for row, number in counts.by_row.items()})
    assert found == owned


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), max_size=150), st.data())
def test_totals_by_domain_equal_sums_over_nodes(changes: list[tuple[int, int]], data: st.DataObject) -> None:
    from corelane.scheduler.cluster.labels import Counts, Topology

    topology, counts, expected = Topology(), Counts(), Counter()
    labels = {}
    for row, zone in changes:
        counts.add(row, 1)
        expected[row] += 1
        labels[row] = {"zone": f"z{zone}"} if zone else {}
        topology.put(row, labels[row])
        if zone == 3:
            topology.ids("zone")
    totals = counts.totals(topology, "zone")
    by_zone = Counter()
    for row, number in expected.items():
        if "zone" in labels[row]:
            by_zone[labels[row]["zone"]] += number
    for row in expected:
        of = topology.id("zone", row)
        assert totals[of] == by_zone[labels[row].get("zone", "")]
    assert totals[-1] == 0
    dense = counts.dense(topology.capacity)
    assert {row: dense[row] for row in expected} == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(_STEPS, max_size=25), st.lists(pods("new"), min_size=1, max_size=3), st.integers(0, 4))
def test_counts_asked_for_in_portions_equal_those_of_looking_at_every_pod(
    steps: list, askers: list[Pod], portion: int
) -> None:
    cache, placed = NodeCache(), {}
    for what, one, other in steps:
        _take(cache, placed, what, one, other)
        for asker in askers:
            _ask_a_little(cache, asker, portion)
    for asker in askers:
        _check(cache, placed, asker)


def _ask_a_little(cache: NodeCache, asker: Pod, portion: int) -> bool:
    """Ask with so many steps; return whether all was answered."""
    mine = pod_facts(asker).affinities
    cache.index.steps = portion
    try:
        cache.index.matching(mine.required)
        cache.index.matching_set(
            in_namespace(asker.metadata.namespace, mine.anti[0].pods.rules if mine.anti else ())
        )
    except Unfinished:
        return False
    finally:
        cache.index.steps = None
    return True


def _labelled(number: int, **selected: str) -> Pod:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": selected}}
    body = {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": f"u{number}",
            "labels": {"app": "a", "tier": "ab"[number % 2]},
        },
        "spec": {"affinity": _terms("podAffinity", [term]) if selected else {}},
    }
    return msgspec.json.decode(json.dumps(body), type=Pod)


def test_a_label_looked_at_for_the_first_time_sorts_pods_in_portions_while_older_questions_are_answered() -> (
    None
):
    cache, placed = NodeCache(), {}
    for number in range(100):
        one, node = _labelled(number), _NODES[number % 4]
        cache.put_pod(node, PodInfo.of(one))
        placed[one.metadata.uid] = (one, node)
    old, new = _labelled(1000, app="a"), _labelled(1001, tier="a")
    _check(cache, placed, old)
    answered = []
    while not (answered and answered[-1]):
        answered.append(_ask_a_little(cache, new, 10))
        _check(cache, placed, old)
    assert len(answered) > 10
    _check(cache, placed, new)
