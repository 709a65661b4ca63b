"""What advice says of others and to kubectl: guarantees by requests, patches that a shell cannot misread."""

import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.advice import changes
from corelane.limits.advice.changes import RiskLevel, shares
from corelane.limits.advice.subjects import NodeOccupancy, NodePod, Subject
from corelane.workload.request import QOSClass

BURSTABLE, GUARANTEED, NONE = QOSClass.BURSTABLE, QOSClass.GUARANTEED, QOSClass.BEST_EFFORT
WEB = Subject("Deployment", "shop", "web", "app")


def pod(name: str, request: int, qos: QOSClass = BURSTABLE, **more) -> NodePod:
    return NodePod(f"shop/{name}", qos, request, **more)


def by_name(node: NodeOccupancy, weight=int) -> dict[str, float]:
    return {one.pod.title.rpartition("/")[2]: one.milli for one in shares(node, weight)}


def test_requests_that_fill_one_cpu_still_give_each_its_share():
    """The document's worked example, with cgroup v1's shares."""
    node = NodeOccupancy("n", 1000, (pod("node", 6), pod("a", 100), pod("b", 200), pod("c", 694)))
    found = by_name(node)
    assert found["a"] == pytest.approx(100, rel=0.005)
    assert found["b"] == pytest.approx(200, rel=0.005)
    assert not any(one.short for one in shares(node, int))
    assert not any(one.short for one in shares(node)), "nor with version 2's coarser weights"


def test_a_pod_without_a_request_has_next_to_nothing_beside_those_with_one():
    node = NodeOccupancy(
        "n", 4000, (pod("web", 1000, own=True), pod("greedy", 0, NONE), pod("db", 2000, GUARANTEED))
    )
    found = by_name(node)
    assert found["greedy"] < 5
    assert found["db"] > 2000
    risk = changes.unlimited_risk([node], None, int)
    assert risk.level is RiskLevel.MEDIUM
    assert "pods without a request may starve: shop/greedy" in risk.why
    assert risk.nodes[0].without_request == ("shop/greedy",)


def test_more_requests_than_cpus_guarantee_nobody_anything():
    node = NodeOccupancy("n", 1000, (pod("web", 800, own=True), pod("db", 800)))
    risk = changes.unlimited_risk([node], None, int)
    assert risk.level is RiskLevel.HIGH
    assert risk.nodes[0].short[0].pod.title == "shop/db"


def test_exclusive_cpus_are_neither_shared_nor_in_danger():
    node = NodeOccupancy("n", 4000, (pod("web", 1000, own=True), pod("rt", 2000, GUARANTEED, exclusive=2)))
    assert by_name(node) == {"web": 2000}
    assert changes.unlimited_risk([node], None).level is RiskLevel.LOW


def test_a_limit_for_which_there_is_room_beside_all_requests_endangers_nobody():
    node = NodeOccupancy("n", 4000, (pod("web", 200, own=True), pod("db", 1000)))
    assert changes.unlimited_risk([node], 3.0, request=200).level is RiskLevel.NONE
    assert changes.unlimited_risk([node], 3.5, request=200).level is RiskLevel.LOW


def test_whole_weights_that_shorten_a_share_are_seen():
    """Version 2's weight of 10m is 1, as that of 26m is: forty of them outweigh what one pod asked for."""
    small = tuple(pod(f"s{i}", 10) for i in range(40))
    node = NodeOccupancy("n", 1000, (pod("web", 10, own=True), pod("db", 500), *small))
    risk = changes.unlimited_risk([node], None)
    assert risk.level is RiskLevel.MEDIUM
    assert "shop/db is guaranteed" in risk.why
    assert changes.unlimited_risk([node], None, int).level is RiskLevel.LOW


def test_what_is_not_known_is_said():
    assert "--pods" in changes.unlimited_risk([], None).why
    assert "--node-cpus" in changes.unlimited_risk([NodeOccupancy("n", 0, ())], None).why


def test_own_cpus_need_room():
    node = NodeOccupancy("n", 4000, (pod("web", 200, own=True), pod("db", 1000)))
    assert changes.exclusive_risk([node], 2, 200).level is RiskLevel.LOW
    assert changes.exclusive_risk([node], 4, 200).level is RiskLevel.HIGH
    assert "would be requested" in changes.exclusive_risk([node], 4, 200).why


def test_other_containers_of_its_pods_keep_what_they_request():
    node = NodeOccupancy("n", 4000, (pod("web", 1200, own=True), pod("db", 1000)))
    assert changes.unlimited_risk([node], 2.0, request=200).level is RiskLevel.NONE
    assert changes.unlimited_risk([node], 2.5, request=200).level is RiskLevel.LOW
    assert "1 of 4 CPUs remain" in changes.exclusive_risk([node], 1, 200).why
    assert changes.exclusive_risk([node], 3, 200).level is RiskLevel.HIGH


def test_a_higher_request_needs_room_on_every_node():
    nodes = [NodeOccupancy("n", 4000, (pod("web", 200, own=True), pod("db", 3000)))]
    assert changes.crowded_risk(nodes, 1000, 200) is None
    assert changes.crowded_risk(nodes, 100, 200) is None
    full = changes.crowded_risk(nodes, 1500, 200)
    assert full is not None
    assert (full.level, full.why) == (
        RiskLevel.HIGH,
        "node n: 4.5 of 4 CPUs would be requested",
    )


pods = st.lists(
    st.tuples(st.sampled_from([BURSTABLE, GUARANTEED, NONE]), st.integers(1, 4000)), min_size=1, max_size=8
)


@settings(max_examples=80)
@given(pods, st.integers(1, 64))
def test_shares_are_all_of_the_cpus_and_follow_requests(drawn, cpus):
    found = tuple(pod(f"p{i}", 0 if qos is NONE else asked, qos) for i, (qos, asked) in enumerate(drawn))
    got = shares(NodeOccupancy("n", 1000 * cpus, found), int)
    assert sum(one.milli for one in got) == pytest.approx(1000 * cpus)
    burstable = [one for one in got if one.pod.qos is BURSTABLE]
    ordered = sorted(burstable, key=lambda one: one.pod.request)
    assert [one.milli for one in ordered] == sorted(one.milli for one in burstable)


@settings(max_examples=80)
@given(pods)
def test_whoever_asks_gets_what_he_asked_for_where_requests_fit(drawn):
    found = tuple(pod(f"p{i}", 0 if qos is NONE else asked, qos) for i, (qos, asked) in enumerate(drawn))
    cpus = -(-sum(one.request for one in found) // 1000) + 1
    assert all(
        one.milli >= 0.95 * one.pod.request - 5 for one in shares(NodeOccupancy("n", 1000 * cpus, found), int)
    )


# Patches.


def content(command: str) -> object:
    words = shlex.split(command)
    assert words[:2] == ["kubectl", "patch"]
    assert words[-2] == "-p"
    return json.loads(words[-1])


def test_a_patch_is_a_whole_command_for_a_strategic_merge():
    made = changes.container_patch(WEB, {"resources": {"limits": {"cpu": None}}})
    assert made is not None
    assert made.command == (
        "kubectl patch deployment/web --namespace=shop --type=strategic -p "
        '\'{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":null}}}]}}}}\''
    )
    assert content(made.command) == made.content


@pytest.mark.parametrize("name", ["a'; rm -rf ~; '", "$(id)", "--kubeconfig=/x", "a\nb", '"', "`id`"])
def test_names_from_a_file_can_neither_leave_their_quotes_nor_be_options(name):
    made = changes.container_patch(replace(WEB, name=name, namespace=name, container=name), {"env": []})
    assert made is not None
    words = shlex.split(made.command)
    assert words[2:6] == [f"deployment/{name}", f"--namespace={name}", "--type=strategic", "-p"]
    assert content(made.command)["spec"]["template"]["spec"]["containers"][0]["name"] == name


@given(st.text(min_size=1, max_size=20))
def test_any_name_comes_through_a_shell_as_it_is(name):
    made = changes.annotation_patch(replace(WEB, name="web", namespace="ns"), name, name)
    assert made is not None
    assert content(made.command) == made.content


def test_a_patch_names_the_place_of_the_container_in_its_object():
    def spec(**change):
        return changes.container_patch(replace(WEB, **change), {"env": []}).content["spec"]

    assert spec(kind="CronJob")["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert spec(init=True)["template"]["spec"]["initContainers"][0]["name"] == "app"
    assert changes.container_patch(replace(WEB, listed=False), {}) is None, "its workload is unknown"


@pytest.mark.parametrize(
    ("kind", "words"), [("Pod", "delete it"), ("Job", "cannot be changed"), ("Rollout", "no strategic merge")]
)
def test_what_cannot_be_patched_gets_the_text_and_the_reason(kind, words):
    made = changes.container_patch(replace(WEB, kind=kind), {"resources": {}})
    assert made is not None
    assert made.command == ""
    assert words in made.note


def test_a_running_pod_may_be_resized_in_place_while_its_class_stays():
    made = changes.container_patch(replace(WEB, kind="Pod"), {"resources": {}}, resize=True)
    assert made is not None
    assert "--subresource=resize" in shlex.split(made.command)
    assert "1.33" in made.note
