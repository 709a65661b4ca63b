import numpy as np
import pytest

from corelane.kube import node_terms
from corelane.kube.meta import Condition, ObjectMeta
from corelane.kube.objects import Node, NodeSpec, NodeStatus, Taint
from corelane.kube.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Toleration,
)
from corelane.scheduler.cluster.node_info import taints_of
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import NodeChanged
from corelane.scheduler.plugins.node_affinity import NodeAffinity as AffinityPlugin
from support.core_lab import cycle_of
from support.objects import node
from support.pods import pod

LABELLED = node("n1", labels={"zone": "a", "cores": "16", "text": "x", "huge": "9" * 19})


def term(*rules: tuple[str, str, tuple[str, ...]], names: tuple[str, ...] = ()) -> NodeSelectorTerm:
    fields = (NodeSelectorRequirement("metadata.name", "In", names),) if names else ()
    return NodeSelectorTerm(tuple(NodeSelectorRequirement(*rule) for rule in rules), fields)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (("zone", "In", ("b", "a")), True),
        (("zone", "In", ("b",)), False),
        (("absent", "In", ("",)), False),
        (("zone", "NotIn", ("b",)), True),
        (("zone", "NotIn", ("a",)), False),
        (("absent", "NotIn", ("a",)), True),
        (("zone", "Exists", ()), True),
        (("absent", "Exists", ()), False),
        (("zone", "DoesNotExist", ()), False),
        (("absent", "DoesNotExist", ()), True),
        (("cores", "Gt", ("15",)), True),
        (("cores", "Gt", ("16",)), False),
        (("cores", "Lt", ("17",)), True),
        (("cores", "Lt", ("16",)), False),
        (("text", "Gt", ("1",)), False),
        (("cores", "Gt", ("x",)), False),
        (("cores", "Lt", ("9223372036854775807",)), True),
        (("cores", "Lt", ("9223372036854775808",)), False),
        (("huge", "Gt", ("1",)), False),
        (("cores", "Gt", ("1", "2")), False),
        (("absent", "Lt", ("1",)), False),
        (("zone", "Near", ("a",)), False),
    ],
)
def test_every_operator(rule: tuple[str, str, tuple[str, ...]], holds: bool) -> None:
    assert node_terms.term_matches(term(rule), LABELLED) is holds


def test_a_term_needs_all_its_requirements_and_an_empty_one_matches_nothing() -> None:
    in_a, in_b = ("zone", "In", ("a",)), ("zone", "In", ("b",))
    assert node_terms.term_matches(term(in_a, names=("n1",)), LABELLED)
    assert not node_terms.term_matches(term(in_a, names=("n2",)), LABELLED)
    assert not node_terms.term_matches(term(in_b, names=("n1",)), LABELLED)
    assert not node_terms.term_matches(term(), LABELLED)


def required(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(NodeAffinity(NodeSelector(terms)))


def test_one_of_the_terms_and_the_whole_selector_must_hold() -> None:
    in_a, in_b = term(("zone", "In", ("a",))), term(("zone", "In", ("b",)))
    matches = node_terms.matches_required_affinity
    assert matches(pod("p"), LABELLED)
    assert matches(pod("p", node_selector={"zone": "a"}, affinity=required(in_b, in_a)), LABELLED)
    assert not matches(pod("p", node_selector={"zone": "b"}, affinity=required(in_a)), LABELLED)
    assert not matches(pod("p", affinity=required(in_b)), LABELLED)
    assert not matches(pod("p", affinity=required()), LABELLED)
    assert matches(pod("p", affinity=Affinity(NodeAffinity())), LABELLED)


def test_preferred_terms_count_by_weight() -> None:
    core = SchedulerCore()
    for zone in ("a", "b", "c"):
        core.handle(NodeChanged(0, None, node(f"in-{zone}", labels={"zone": zone})))
    preferred = tuple(
        PreferredSchedulingTerm(weight, term(("zone", "In", (zone,))))
        for weight, zone in ((30, "b"), (10, "a"))
    )
    cluster = core.cluster
    cycle = cycle_of(pod("p", affinity=Affinity(NodeAffinity(preferred=preferred))), cluster)
    rows = np.array([cluster.get(f"in-{zone}").row for zone in ("a", "b", "c")])
    assert AffinityPlugin().scores(cycle, cluster.columns, rows).tolist() == [10, 30, 0]


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("k", "Equal", "v"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "", "w"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("other", "Exists"), False),
        (Toleration("k", "Exists", effect="NoExecute"), False),
        (Toleration("k", "Exists", effect="NoSchedule"), True),
        (Toleration("k", "Like", "v"), False),
    ],
)
def test_a_toleration_is_upstreams(toleration: Toleration, tolerates: bool) -> None:
    assert node_terms.tolerated(Taint("k", "v", "NoSchedule"), [toleration]) is tolerates


def test_only_repelling_taints_keep_a_pod_off() -> None:
    soft, hard = Taint("soft", effect="PreferNoSchedule"), Taint("hard", "x", "NoExecute")
    assert node_terms.untolerated(pod("p"), taints_of(node("n", taints=(soft,)))) is None
    assert node_terms.untolerated(pod("p"), taints_of(node("n", taints=(soft, hard)))) == hard
    tolerant = pod("p", tolerations=(Toleration("hard", "Exists"),))
    assert node_terms.untolerated(tolerant, taints_of(node("n", taints=(soft, hard)))) is None


@pytest.mark.parametrize(
    ("ready", "key"),
    [
        ("True", None),
        ("False", "node.kubernetes.io/not-ready"),
        ("Unknown", "node.kubernetes.io/unreachable"),
    ],
)
def test_a_node_that_is_not_ready_counts_as_tainted(ready: str, key: str | None) -> None:
    found = node_terms.untolerated(pod("p"), taints_of(node("n", ready=ready)))
    assert (found.key if found else None) == key
    assert node_terms.untolerated(pod("p"), taints_of(Node(metadata=ObjectMeta(name="silent")))) is None


def test_the_taint_of_a_node_controller_is_not_doubled() -> None:
    set_by_it = Taint("node.kubernetes.io/not-ready", effect="NoExecute")
    status = NodeStatus(conditions=(Condition("Ready", "False"),))
    tainted = Node(spec=NodeSpec(taints=(set_by_it,)), status=status)
    assert list(taints_of(tainted)) == [set_by_it]
