"""Replicas wait as one, but not where a selector looks at a label in which they differ."""

import json
from collections.abc import Mapping

import msgspec
import pytest

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.objects import Node
from corelane.kube.pod import Affinity, Pod
from support import objects
from support.core_lab import CoreLab, names
from support.objects import node
from support.pods import container, guaranteed, pod

NAME = "statefulset.kubernetes.io/pod-name"
INDEX = "apps.kubernetes.io/pod-index"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"


def replica(number: int, cpu: str = "1", **more: object) -> Pod:
    labels = {"app": "w", NAME: f"w-{number}", INDEX: str(number), JOB_INDEX: str(number)}
    container_ = container("main", f"cpu={cpu}")
    return pod(f"w-{number}", container_, labels=labels, **more)


def keeps_away(name: str, selector: Mapping[str, object]) -> Pod:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    raw = msgspec.Raw(json.dumps({"requiredDuringSchedulingIgnoredDuringExecution": [term]}).encode())
    return pod(name, container("main", "cpu=1"), affinity=Affinity(pod_anti_affinity=raw))


def a_node(name: str = "n1", cpus: int = 8, zone: str = "a") -> Node:
    return node(name, cpus, labels={"kubernetes.io/hostname": name, "zone": zone})


@pytest.mark.parametrize(
    ("key", "value"), [(NAME, "w-0"), (INDEX, "0"), (JOB_INDEX, "0")], ids=["name", "index", "job-index"]
)
def test_a_replica_that_another_pod_keeps_away_says_nothing_about_the_next_one(key: str, value: str) -> None:
    lab = CoreLab(a_node())
    lab.on("n1", keeps_away("x", {"matchLabels": {key: value}}))
    assert names(lab.place(*(replica(number) for number in range(3)))) == ["w-1", "w-2"]
    assert set(lab.core.pending()) == {"uid-w-0", "uid-w-1", "uid-w-2"}


@pytest.mark.parametrize("on_trial", [False, True])
def test_waiting_replicas_are_told_apart_once_a_selector_does(on_trial: bool) -> None:
    """Also where a replica is being tried when the selector comes."""
    lab = CoreLab(a_node(cpus=5))
    full = lab.on("n1", pod("full", container("main", "cpu=4")))
    assert lab.bound(*(replica(number, cpu="2") for number in range(3))) == []
    lab.now = 100
    if on_trial:
        lab.delete(full)
    lab.on("n1", keeps_away("x", {"matchLabels": {NAME: "w-0"}}))
    if not on_trial:
        lab.delete(full)
    assert names(lab.run()) == ["w-1", "w-2"]


def test_a_replica_that_counts_in_its_own_constraint_says_nothing_about_one_that_does_not() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {INDEX: "0"}},
    }
    raw = msgspec.Raw(json.dumps([constraint]).encode())
    lab = CoreLab(a_node())
    lab.has(a_node("n2", cpus=0, zone="b"))
    other = pod("other", container("main", "cpu=1"), labels={INDEX: "0"})
    lab.on("n1", other)
    replicas = (replica(number, topology_spread_constraints=raw) for number in range(3))
    assert names(lab.place(*replicas)) == ["w-1", "w-2"]


def test_replicas_wait_as_one_where_selectors_look_at_other_labels_only() -> None:
    lab = CoreLab(a_node())
    lab.on("n1", keeps_away("x", {"matchLabels": {"app": "w"}}))
    attempts = []
    lab.core.decisions.attempted = lambda now, waiting, attempt: attempts.append(waiting.uid)  # type: ignore[method-assign]
    assert names(lab.place(*(replica(number) for number in range(50)))) == []
    assert len(attempts) == 1


def test_a_replica_beside_whose_cpus_a_placed_pod_wants_none_says_nothing_about_the_next_one() -> None:
    """The rule is in the node's published ledger only: the pod that has it is not seen."""
    avoid = {"avoid": {"matchLabels": {NAME: "w-0"}}, "level": "numa", "required": True}
    state = objects.state("socket:1 core:8", "n1", policy="pools")
    picky = guaranteed("x", "1", annotations={keys.CPU_AFFINITY: json.dumps([avoid])})
    request = translate.request(picky)
    assert request is not None
    admitted, _ = nodes.admit(state, request)
    lab = CoreLab(a_node())
    lab.publish("n1", admitted)
    for number in range(3):
        labels = {NAME: f"w-{number}", INDEX: str(number)}
        lab.add(guaranteed(f"w-{number}", "2", labels=labels))
    assert names(lab.run()) == ["w-1", "w-2"]
