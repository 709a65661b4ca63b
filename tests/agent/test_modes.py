"""What the agent may do beside a kubelet: every combination of what is known of it, flags and policies."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.agent.allocation.modes import (
    CPUWrites,
    Mode,
    ModeInputs,
    ModeName,
    Remaining,
    ReportedPolicies,
    decide,
)
from corelane.cpuset import CPUSet
from corelane.reasons import Code, sentence

FAULT = "GET /configz: 403 Forbidden"
FILE_FAULT = "cpu_manager_state: No such file or directory"
LEFT = Remaining(2, CPUSet.parse("2-3"))

# Answer of /configz, whether it can be repeated now, the state file's policy -> mode, source or reason.
KUBELETS = {
    ("none", True, ""): (ModeName.OWNER, Code.MODE_KUBELET_NONE),
    ("none", True, "none"): (ModeName.OWNER, Code.MODE_KUBELET_NONE),
    ("none", True, "static"): (ModeName.KUBELET, Code.MODE_POLICIES_DIFFER),
    ("none", True, "dynamic"): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED),
    ("none", False, ""): (ModeName.OWNER, Code.MODE_KUBELET_NONE),
    ("none", False, "none"): (ModeName.OWNER, Code.MODE_KUBELET_NONE),
    ("none", False, "static"): (ModeName.KUBELET, Code.MODE_POLICIES_DIFFER),
    ("none", False, "dynamic"): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED),
    ("static", True, ""): (ModeName.KUBELET, Code.MODE_KUBELET_STATIC),
    ("static", True, "none"): (ModeName.KUBELET, Code.MODE_POLICIES_DIFFER),
    ("static", True, "static"): (ModeName.KUBELET, Code.MODE_KUBELET_STATIC),
    ("static", True, "dynamic"): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED),
    ("static", False, ""): (ModeName.KUBELET, Code.MODE_KUBELET_STATIC),
    ("static", False, "none"): (ModeName.KUBELET, Code.MODE_POLICIES_DIFFER),
    ("static", False, "static"): (ModeName.KUBELET, Code.MODE_KUBELET_STATIC),
    ("static", False, "dynamic"): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED),
    **{
        ("dynamic", current, file): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED)
        for current in (True, False)
        for file in ("", "none", "static", "dynamic")
    },
    ("", False, "dynamic"): (ModeName.READ_ONLY, Code.MODE_POLICY_UNRECOGNIZED),
    ("", False, ""): (ModeName.READ_ONLY, Code.MODE_POLICY_UNKNOWN),
    ("", False, "none"): (ModeName.OWNER, Code.MODE_KUBELET_NONE),
    ("", False, "static"): (ModeName.KUBELET, Code.MODE_KUBELET_STATIC),
}


def policies(answer: str, current: bool, file: str, memory: str = "None") -> ReportedPolicies:
    return ReportedPolicies(answer, "" if current else FAULT, memory, file, "" if file else FILE_FAULT)


def codes(mode: Mode) -> list[Code]:
    return [reason.code for reason in mode.reasons]


@pytest.mark.parametrize(("facts", "expected"), KUBELETS.items())
def test_the_kubelets_policy_decides(facts, expected):
    name, code = expected
    mode = decide(ModeInputs(kubelet=policies(*facts)))
    assert mode.name is name
    assert mode.reasons[0].code is code
    assert mode.allocates is (name is ModeName.OWNER)


@pytest.mark.parametrize("facts", [facts for facts in KUBELETS if not facts[1] and facts[0]])
def test_an_answer_that_cannot_be_repeated_is_named(facts):
    assert Code.MODE_LAST_ANSWER in codes(decide(ModeInputs(kubelet=policies(*facts))))


@pytest.mark.parametrize(("answer", "file"), [("none", "static"), ("static", "none")])
def test_a_kubelet_that_cannot_start_with_its_state_file_does_not_change_the_mode_each_time(answer, file):
    """It answers /configz for a moment after every start, then ends (kubelet 1.36)."""
    names = {decide(ModeInputs(policies(answer, current, file))).name for current in (True, False)}
    assert names == {ModeName.KUBELET}


@pytest.mark.parametrize("facts", [*KUBELETS, None])
@pytest.mark.parametrize("policy", ["none", "static", "pools"])
@pytest.mark.parametrize(("read_only", "ignore"), [(True, False), (False, True), (True, True)])
def test_flags_precede_everything(facts, policy, read_only, ignore):
    kubelet = policies(*facts) if facts else None
    mode = decide(ModeInputs(kubelet, policy, read_only, ignore))
    assert mode.name is (ModeName.IGNORED if ignore else ModeName.READ_ONLY)
    assert mode.writes_cpus is CPUWrites.NOTHING
    assert not mode.writes_mems
    assert not mode.allocates
    assert mode.reports_kubelet_cpus is (kubelet is not None and not ignore)
    assert mode.holds_kubelet_cpus is not ignore


@pytest.mark.parametrize("facts", [*KUBELETS, None])
def test_node_policy_none_writes_nothing_and_reports(facts):
    mode = decide(ModeInputs(policies(*facts) if facts else None, "none"))
    assert mode.name is ModeName.OBSERVER
    assert codes(mode) == [Code.MODE_NODE_POLICY_NONE]
    assert mode.writes_cpus is CPUWrites.NOTHING
    assert not mode.writes_mems
    assert mode.reports_kubelet_cpus is (facts is not None)


@pytest.mark.parametrize(
    ("memory", "writes", "code"),
    [
        ("None", True, None),
        ("Static", False, Code.MODE_MEMORY_STATIC),
        ("BestEffort", False, Code.MODE_MEMORY_UNKNOWN),
        ("", False, Code.MODE_MEMORY_UNKNOWN),
    ],
)
def test_memory_nodes_are_written_only_without_a_memory_manager(memory, writes, code):
    mode = decide(ModeInputs(policies("none", True, "none", memory)))
    assert mode.writes_mems is writes
    assert (codes(mode)[-1] is code) if code else codes(mode) == [Code.MODE_KUBELET_NONE]


def test_without_a_kubelet_corelane_owns_cpus_and_memory_nodes():
    mode = decide(ModeInputs())
    assert mode.name is ModeName.OWNER
    assert mode.writes_mems
    assert not mode.reports_kubelet_cpus


def test_a_takeover_lasts_while_pods_pinned_by_the_kubelet_run():
    mode = decide(ModeInputs(policies("none", True, "none"), pinned=LEFT))
    assert mode.name is ModeName.TAKEOVER
    assert (mode.allocates, mode.writes_cpus, mode.holds_kubelet_cpus) == (True, CPUWrites.EVERY, True)
    assert sentence(mode.reasons[1]) == "2 pods pinned by the kubelet keep CPUs 2-3 until they end"


def test_pods_of_corelane_under_a_static_kubelet_are_named():
    mode = decide(ModeInputs(policies("static", True, "static"), exclusive=LEFT))
    assert mode.name is ModeName.KUBELET
    assert Code.MODE_EXCLUSIVE_PODS_LEFT in codes(mode)


def test_under_a_static_kubelet_only_containers_that_it_does_not_manage_are_written():
    mode = decide(ModeInputs(policies("static", True, "static")))
    assert not mode.may_write_cpus(kubelet_manages=True)
    assert mode.may_write_cpus(kubelet_manages=False)
    assert mode.policy("pools") == "none"


def test_an_unknown_policy_names_both_causes_and_the_remedy():
    mode = decide(ModeInputs(policies("", False, "")))
    text = sentence(mode.reasons[0])
    assert FAULT in text
    assert FILE_FAULT in text
    assert text.startswith("the kubelet's CPU manager policy is unknown")


WORDS = ["", "none", "static", "dynamic"]
REPORTED = st.builds(
    ReportedPolicies,
    st.sampled_from(WORDS),
    st.sampled_from(["", FAULT]),
    st.sampled_from(["", "None", "Static", "BestEffort"]),
    st.sampled_from(WORDS),
    st.sampled_from(["", FILE_FAULT]),
)
INPUTS = st.builds(
    ModeInputs,
    st.none() | REPORTED,
    st.sampled_from(["none", "static", "pools"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([Remaining(), LEFT]),
    st.sampled_from([Remaining(), LEFT]),
)


@given(INPUTS)
def test_two_owners_never_allocate_at_once_and_doubt_never_writes(inputs):
    mode = decide(inputs)
    assert mode.reasons
    assert all(sentence(reason) for reason in mode.reasons)
    if mode.allocates:
        assert mode.writes_cpus is CPUWrites.EVERY
        known = {inputs.kubelet.answer, inputs.kubelet.file} - {""} if inputs.kubelet else {"none"}
        assert known == {"none"}
    else:
        assert mode.writes_cpus is not CPUWrites.EVERY
        assert mode.policy(inputs.node_policy) == "none"
        assert not mode.writes_mems
    if mode.writes_mems and inputs.kubelet is not None:
        assert inputs.kubelet.memory == "None"
    if inputs.read_only or inputs.ignore or inputs.node_policy == "none":
        assert mode.writes_cpus is CPUWrites.NOTHING


def test_the_table_names_every_combination_of_answers_and_files():
    combinations = product(WORDS, (True, False), WORDS)
    assert set(KUBELETS) == {key for key in combinations if key[0] or not key[1]}
