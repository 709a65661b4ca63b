"""Pods with resources as a whole (KEP-2837), with gate PodLevelResourceManagers off and on (KEP-5526)."""

from dataclasses import replace

import pytest

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, StaticOptions, TopologyOptions
from corelane.node.config import NodeConfig
from corelane.workload.request import ContainerKind, ContainerRequest, PodResources
from support.node_asks import pod

GI = 1 << 30
MACHINE = parse_spec("socket:2 numa:1 core:8 smt:1 mem:16G")


def state(gate=True, scope="pod", policy="restricted", **options):
    return node.new(
        MACHINE,
        NodeConfig(
            options=StaticOptions(**options),
            numa=TopologyOptions(policy, scope),
            memory=MemoryOptions("Static", {0: {"memory": GI}}),
            pod_level=gate,
        ),
    )


def requests(name, cpus, gib, kind=ContainerKind.APP):
    return ContainerRequest(name, kind, 1000 * cpus, 1000 * cpus, gib * GI, gib * GI)


def shared(name, kind=ContainerKind.APP):
    return ContainerRequest(name, kind)


def whole(cpus, gib, *containers):
    return replace(pod("p", *containers), level=PodResources(1000 * cpus, gib * GI))


def sets(after):
    return {entry.container: str(entry.cpus) for entry in after.of_pod("p")}


TOO_MUCH = "pod rejected, sum of exclusive container {} requests equals pod budget, leaving no"
SOME = (requests("own", 2, 4), shared("one"), shared("two"))


def test_the_piece_is_free_again_only_with_the_last_container():
    after, _ = node.admit(state(), whole(4, 8, *SOME))
    part = node.release(node.release(after, "p", "own"), "p", "one")
    assert part.exclusive == after.exclusive
    assert part.memory == after.memory
    gone = node.release(part, "p", "two")
    assert not gone.exclusive
    assert gone.memory == state().memory


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (
            whole(2, 8, *SOME),
            f"{TOO_MUCH.format('cpu')} cpus for shared containers",
        ),
        (
            whole(4, 4, *SOME),
            f"{TOO_MUCH.format('memory')} memory for shared containers",
        ),
        (
            whole(2, 8, requests("side", 2, 4, ContainerKind.SIDECAR), shared("first", ContainerKind.INIT)),
            "pod rejected, pod has shared init containers but no cpus available for them",
        ),
    ],
)
def test_a_pod_that_leaves_nothing_to_share_is_refused(pod, message):
    lenient = state(policy="best-effort")
    after, decision = node.admit(lenient, pod)
    assert (decision.reason, decision.message) == ("EmptyPodSharedPoolError", message)
    assert after is lenient
    strict = node.admit(state(), pod)[1]
    assert strict.reason == "TopologyAffinityError"


def test_the_whole_piece_must_be_whole_cores_where_these_are_asked_for():
    machine = parse_spec("socket:1 numa:1 core:8 smt:2 mem:16G")
    options, numa = StaticOptions(full_pcpus_only=True), TopologyOptions("best-effort", "pod")
    strict = node.new(machine, replace(state().config, options=options, numa=numa))
    _, decision = node.admit(strict, whole(3, 8, requests("own", 2, 4), shared("rest")))
    assert decision.reason == "SMTAlignmentError"


def test_lost_cpus_are_lost_to_the_piece_too():
    after, _ = node.admit(state(), whole(4, 8, *SOME))
    fewer = MACHINE.restricted(MACHINE.cpus_mask & ~(1 << 3))
    fitted, problems = node.rebase(after, fewer)
    assert {problem.code for problem in problems} == {"lost"}
    assert sets(fitted) == {"own": "1-2", "one": "4", "two": "4"}
    assert node.validate(fitted) == []
