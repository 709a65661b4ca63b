import pytest

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.reasons import label, sentence
from corelane.workload.request import QOSClass
from support.executed_lines import counted
from support.node_asks import DUAL, LAPTOP, QUAD_NUMA, SINGLE, container, cpus, init, pod, sidecar


def admitted(state, request):
    state, decision = node.admit(state, request)
    assert decision.admitted, decision.message
    assert node.validate(state) == []
    return state, {name: str(given) for name, given in decision.assignments.items()}


def refused(state, request):
    after, decision = node.admit(state, request)
    assert not decision.admitted
    assert after is state
    return decision


def texts(decision, step):
    return [sentence(reason) for reason in decision.reasons if label(reason) == step]


def test_whole_cpus_of_a_guaranteed_pod_are_exclusive_and_leave_the_shared_pool():
    state = node.new(LAPTOP)
    state, decision = node.admit(state, pod("a", container("app", 2000)))
    assert str(decision.assignments["app"]) == "1,5"
    assert str(decision.shared) == "0,2-4,6-7"
    assert state.shared_pool == decision.shared
    assert str(state.free_exclusive) == "2-4,6-7"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (pod("a", container("app", 1500)), "shared pool: CPU request 1500m is not an integer"),
        (pod("a", container("app", 0)), "shared pool: no CPU request"),
        (pod("a", container("app", 2000), qos=QOSClass.BURSTABLE), "shared pool: pod is Burstable"),
    ],
)
def test_everything_else_shares_the_pool_and_is_told_why(pod, why):
    state, decision = node.admit(node.new(LAPTOP), pod)
    assert decision.admitted
    assert decision.assignments == {}
    assert len(decision.shared) == 8
    assert why in texts(decision, "shared")[0]
    assert state.entries["a", "app"].exclusive is False


def test_admitting_a_pod_again_changes_nothing_and_answers_the_same():
    state, given = admitted(node.new(LAPTOP), pod("a", container("app", 2000)))
    again, decision = node.admit(state, pod("a", container("app", 2000)))
    assert again is state
    assert {name: str(given) for name, given in decision.assignments.items()} == given


def test_a_pod_for_which_too_few_exclusive_cpus_are_left_is_refused_in_the_kubelets_words():
    decision = refused(node.new(LAPTOP), pod("a", container("app", 8000)))
    assert decision.reason == "UnexpectedAdmissionError"
    assert decision.message == (
        "Allocate failed due to not enough cpus available to satisfy request: "
        "requested=8, available=7, which is unexpected"
    )


def test_requests_beyond_the_node_are_refused_in_the_kubelets_words():
    state, _ = admitted(node.new(LAPTOP), pod("a", container("app", 6500)))
    decision = refused(state, pod("b", container("app", 1600)))
    assert decision.reason == "OutOfcpu"
    assert decision.message == (
        "Node didn't have enough resource: cpu, requested: 1600, used: 6500, capacity: 8000"
    )


def test_on_one_cpu_nothing_is_exclusive_and_the_refusal_says_so():
    state = node.new(SINGLE)
    decision = refused(state, pod("a", container("app", 1000)))
    assert "the shared pool needs all CPUs of this node" in decision.message
    state, given = admitted(state, pod("b", container("app", 500)))
    assert given == {}
    assert state.shared_pool == cpus("0")


def test_policy_none_touches_nothing():
    state = node.new(LAPTOP, node.NodeConfig(policy="none"))
    state, decision = node.admit(state, pod("a", container("app", 2000)))
    assert decision.admitted
    assert decision.assignments == {}
    assert len(state.shared_pool) == 8
    assert not state.free_exclusive
    assert texts(decision, "shared") == ["policy none: no exclusive CPUs on this node"]


def test_the_fewest_numa_nodes_are_chosen_and_named():
    state, _ = admitted(node.new(QUAD_NUMA), pod("a", container("app", 4000)))
    state, decision = node.admit(state, pod("b", container("app", 8000)))
    assert str(decision.assignments["app"]) == "4-7,20-23"
    assert texts(decision, "numa") == [
        "NUMA node 1: the first with 8 free CPUs (free CPUs by node: 0: 2, 1: 8, 2: 8, 3: 8)"
    ]
    _, decision = node.admit(state, pod("c", container("app", 12000)))
    assert texts(decision, "numa") == [
        "NUMA nodes 2-3: the fewest with 12 free CPUs (free CPUs by node: 0: 2, 1: 0, 2: 8, 3: 8)"
    ]


def test_a_valid_proposal_is_taken_as_it_stands():
    request = pod("a", container("app", 2000), proposal={"app": "3,7"})
    state, decision = node.admit(node.new(LAPTOP), request)
    assert str(decision.assignments["app"]) == "3,7"
    assert decision.repicked is False
    assert state.entries["a", "app"].origin is node.Origin.SCHEDULER


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        ("0,4", "proposed CPUs 0,4: 0 is unavailable; reallocated"),
        ("3", "proposed CPU 3: 1 CPU, 2 required; reallocated"),
        ("7-8", "proposed CPUs 7-8: 8 is unavailable; reallocated"),
    ],
)
def test_a_proposal_that_conflicts_is_replaced(proposal, why):
    request = pod("a", container("app", 2000), proposal={"app": proposal})
    state, decision = node.admit(node.new(LAPTOP), request)
    assert decision.repicked is True
    assert str(decision.assignments["app"]) == "1,5"
    assert texts(decision, "conflict") == [why]
    assert state.entries["a", "app"].origin is node.Origin.CORELANE


def test_picking_again_leaves_the_other_containers_their_valid_proposals():
    request = pod("a", container("x", 2000), container("y", 2000), proposal={"x": "0,4", "y": "1,5"})
    _, decision = node.admit(node.new(LAPTOP), request)
    assert str(decision.assignments["y"]) == "1,5"
    assert str(decision.assignments["x"]) == "2,6"


def test_two_proposals_for_the_same_cpu_do_not_both_hold():
    request = pod("a", container("x", 2000), container("y", 2000), proposal={"x": "1,5", "y": "1,5"})
    state, decision = node.admit(node.new(LAPTOP), request)
    assert {name: str(given) for name, given in decision.assignments.items()} == {"x": "1,5", "y": "2,6"}
    assert node.validate(state) == []


def test_what_one_node_decides_another_takes_as_a_proposal():
    scheduler, agent = node.new(DUAL), node.new(DUAL)
    for i in range(5):
        request = pod(f"p{i}", init("init", 4000), sidecar("proxy", 1000), container("app", 2000))
        scheduler, decided = node.admit(scheduler, request)
        proposal = {name: str(given) for name, given in decided.assignments.items()}
        agent, taken = node.admit(agent, pod(f"p{i}", *request.containers, proposal=proposal))
        assert taken.assignments == decided.assignments
        assert taken.repicked is False


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"reserved": cpus("")}, "reserved: names no CPU"),
        ({"reserved": cpus("6-9")}, "reserved: 6-9: CPUs 8-9 are unavailable: choose from 0-7"),
        ({"reserved_count": 0}, "reserved_count: 0 is not between 1 and 8"),
        ({"reserved_count": 9}, "reserved_count: 9 is not between 1 and 8"),
        ({"reserved": cpus("0"), "reserved_count": 2}, "reserved_count: 2 contradicts reserved: 0"),
        ({"policy": "pinned"}, "policy: 'pinned' is unknown: use none or static"),
    ],
)
def test_settings_that_do_not_fit_the_machine_are_named(config, message):
    with pytest.raises(node.NodeConfigError, match="^" + message):
        node.new(LAPTOP, node.NodeConfig(**config))


def test_a_machine_without_usable_cpus_is_refused():
    with pytest.raises(node.NodeConfigError, match="none of its CPUs"):
        node.new(LAPTOP.restricted(0))


def test_cpus_that_are_online_but_not_allowed_are_never_used():
    state = node.new(DUAL.restricted(cpus("2-5,18-21").mask))
    assert str(state.reserved) == "2"
    state, given = admitted(state, pod("a", container("app", 7000)))
    assert given == {"app": "3-5,18-21"}


def test_admission_is_fast_enough_for_a_scheduler_on_384_cpus():
    state = node.new(parse_spec("socket:2 numa:1 core:96 smt:2"))
    for i in range(60):
        state, _ = node.admit(state, pod(f"p{i}", container("app", 4000), container("side", 500)))
    request = pod("q", container("app", 6000), container("side", 500))
    node.admit(state, request)  # what is computed once a state is kept
    _, lines = counted(node.admit, state, request)
    assert lines < 1_200, "no loop over CPUs: 620 lines are about 100 µs"
