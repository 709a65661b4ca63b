"""Replicas wait as one, but not where a selector looks at a label in which they differ."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.pod import Affinity, Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind
from support import objects
from support.objects import node
from support.pods import container, guaranteed, pod

NAME = "statefulset.kubernetes.io/pod-name"
INDEX = "apps.kubernetes.io/pod-index"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
OURS = "corelane-scheduler"


def replica(number: int, cpu: str = "1", **more: object) -> Pod:
    labels = {"app": "w", NAME: f"w-{number}", INDEX: str(number), JOB_INDEX: str(number)}
    container_ = container("main", f"cpu={cpu}")
    return pod(f"w-{number}", container_, labels=labels, scheduler_name=OURS, **more)


def placed(one: Pod, on: str) -> Pod:
    return replace(one, spec=replace(one.spec, node_name=on))


def keeps_away(name: str, selector: Mapping[str, object]) -> Pod:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    raw = msgspec.Raw(json.dumps({"requiredDuringSchedulingIgnoredDuringExecution": [term]}).encode())
    return pod(name, container("main", "cpu=1"), affinity=Affinity(pod_anti_affinity=raw))


def a_node(name: str = "n1", cpus: int = 8, zone: str = "a") -> NodeChanged:
    labels = {"kubernetes.io/hostname": name, "zone": zone}
    return NodeChanged(0, None, node(name, cpus, labels=labels))


def bound_by(core: SchedulerCore, now: float = 0) -> list[str]:
    done: list[str] = []
    while core.ready(now):
        steps = core.handle(CycleDue(now))
        done += [one.pod.metadata.name for one in steps if isinstance(one, Bind)]
    return done


@pytest.mark.parametrize(
    ("key", "value"), [(NAME, "w-0"), (INDEX, "0"), (JOB_INDEX, "0")], ids=["name", "index", "job-index"]
)
def test_a_replica_that_another_pod_keeps_away_says_nothing_about_the_next_one(key: str, value: str) -> None:
    core = SchedulerCore()
    core.handle(a_node())
    core.handle(PodChanged(0, None, placed(keeps_away("x", {"matchLabels": {key: value}}), "n1")))
    for number in range(3):
        core.handle(PodChanged(0, None, replica(number)))
    assert bound_by(core) == ["w-1", "w-2"]
    assert set(core.pending()) == {"uid-w-0", "uid-w-1", "uid-w-2"}


def test_parked_replicas_are_told_apart_once_a_selector_does() -> None:
    core = SchedulerCore()
    core.handle(a_node(cpus=5))
    full = placed(pod("full", container("main", "cpu=4")), "n1")
    core.handle(PodChanged(0, None, full))
    for number in range(3):
        core.handle(PodChanged(0, None, replica(number, cpu="2")))
    assert bound_by(core) == []
    core.handle(PodChanged(1, None, placed(keeps_away("x", {"matchLabels": {NAME: "w-0"}}), "n1")))
    core.handle(PodChanged(100, full, None))
    assert bound_by(core, 100) == ["w-1", "w-2"]


def test_a_replica_that_is_tried_while_a_selector_comes_is_told_apart_too() -> None:
    core = SchedulerCore()
    core.handle(a_node(cpus=5))
    full = placed(pod("full", container("main", "cpu=4")), "n1")
    core.handle(PodChanged(0, None, full))
    for number in range(3):
        core.handle(PodChanged(0, None, replica(number, cpu="2")))
    assert bound_by(core) == []
    core.handle(PodChanged(100, full, None))  # w-0 is on trial now
    core.handle(PodChanged(100, None, placed(keeps_away("x", {"matchLabels": {NAME: "w-0"}}), "n1")))
    assert bound_by(core, 100) == ["w-1", "w-2"]


def test_a_replica_that_counts_in_its_own_constraint_says_nothing_about_one_that_does_not() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {INDEX: "0"}},
    }
    raw = msgspec.Raw(json.dumps([constraint]).encode())
    core = SchedulerCore()
    core.handle(a_node())
    core.handle(a_node("n2", cpus=0, zone="b"))
    other = pod("other", container("main", "cpu=1"), labels={INDEX: "0"})
    core.handle(PodChanged(0, None, placed(other, "n1")))
    for number in range(3):
        core.handle(PodChanged(0, None, replica(number, topology_spread_constraints=raw)))
    assert bound_by(core) == ["w-1", "w-2"]


def test_replicas_wait_as_one_where_selectors_look_at_other_labels_only() -> None:
    core = SchedulerCore()
    core.handle(a_node())
    core.handle(PodChanged(0, None, placed(keeps_away("x", {"matchLabels": {"app": "w"}}), "n1")))
    attempts = []
    core.decisions.attempted = lambda now, waiting, attempt: attempts.append(waiting.uid)  # type: ignore[method-assign]
    for number in range(50):
        core.handle(PodChanged(0, None, replica(number)))
    assert bound_by(core) == []
    assert len(attempts) == 1


def test_a_replica_beside_whose_cpus_a_placed_pod_wants_none_says_nothing_about_the_next_one() -> None:
    """The rule is in the node's published ledger only: the pod that has it is not seen."""
    avoid = {"avoid": {"matchLabels": {NAME: "w-0"}}, "level": "numa", "required": True}
    state = objects.state("socket:1 core:8", "n1", policy="pools")
    picky = guaranteed("x", "1", annotations={keys.CPU_AFFINITY: json.dumps([avoid])})
    request = translate.request(picky)
    assert request is not None
    admitted, _ = nodes.admit(state, request)
    core = SchedulerCore()
    core.handle(a_node())
    core.handle(TopologyChanged(0, None, objects.topology("n1", admitted)))
    for number in range(3):
        labels = {NAME: f"w-{number}", INDEX: str(number)}
        core.handle(PodChanged(0, None, guaranteed(f"w-{number}", "2", labels=labels, scheduler_name=OURS)))
    assert bound_by(core) == ["w-1", "w-2"]
