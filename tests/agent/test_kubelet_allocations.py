"""The kubelet's CPU allocations: from its state file, else from its podresources socket."""

import asyncio

import pytest

from corelane.agent.allocation.modes import ModeInputs, ReportedPolicies, decide
from corelane.agent.kubelet.kubelet_allocations import KubeletState, PodResources
from corelane.agent.kubelet.kubelet_sources import KubeletFacts
from corelane.cpuset import CPUSet
from corelane.kube.objects import KubeletConfiguration
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.runtime.podresources import PodAllocation
from support import podresources_server
from support.node_lab import in_lab, pod, source

UIDS = {"default/web": "uid-web"}
LISTED = PodResources(CPUSet(range(1, 8)), (PodAllocation("default", "web", {"app": CPUSet([2, 3])}),))
SAME = Checkpoint("static", CPUSet([0, 1, 4, 5, 6, 7]), {"uid-web": {"app": CPUSet([2, 3])}})
OTHER = Checkpoint("static", CPUSet([0, 1, 2, 3, 6, 7]), {"uid-web": {"app": CPUSet([4, 5])}})


def judged(file, resources=LISTED, *, readable=True, policy_is_none=False):
    facts = KubeletFacts(
        configuration=KubeletConfiguration(cpu_manager_policy="none") if policy_is_none else None,
        state=KubeletState(file),
        state_fault="" if readable else "it cannot be read",
        resources=resources,
    )
    return facts.allocations(UIDS)


def test_the_state_file_counts_while_it_can_be_read():
    assert judged(SAME) == (SAME, "cpu_manager_state")
    assert judged(SAME, LISTED.compared(SAME, UIDS)) == (SAME, "cpu_manager_state")


@pytest.mark.parametrize(("file", "readable"), [(None, True), (OTHER, False)])
def test_the_socket_counts_where_the_file_is_out_of_reach(file, readable):
    allocations, origin = judged(file, readable=readable)
    assert (allocations.policy, allocations.entries, origin) == ("static", SAME.entries, "podresources")


def test_a_file_of_another_kubelet_does_not_count_and_is_explained():
    resources = LISTED.compared(OTHER, UIDS)
    assert judged(OTHER, resources)[1] == "podresources"
    assert judged(SAME, resources)[1] == "cpu_manager_state"
    assert resources.why_outdated == (
        "cpu_manager_state is not that of the running kubelet: default/web app: CPUs 4-5 in the file, 2-3 by "
        "the kubelet; set kubelet.stateFile to the file in the kubelet's root directory, and mount that "
        "directory"
    )


def test_init_containers_ended_pods_and_pods_not_listed_yet_make_no_file_outdated():
    more = Checkpoint(
        "static",
        CPUSet([0]),
        {"uid-web": {"app": CPUSet([2, 3]), "init": CPUSet([4])}, "gone": {"a": CPUSet([5])}},
    )
    assert LISTED.compared(more, UIDS) == LISTED
    assert LISTED.compared(OTHER, {}) == LISTED
    assert LISTED.compared(None, UIDS) == LISTED


def test_pods_that_are_not_listed_yet_are_left_out_and_counted():
    assert LISTED.checkpoint({}).entries == {}
    assert LISTED.summary({}) == "2 of 7 allocatable CPUs exclusive, 1 pods, 1 of them not listed yet"
    assert LISTED.summary(UIDS) == "2 of 7 allocatable CPUs exclusive, 1 pods"


def test_cpus_of_pod_level_resources_are_held_as_a_whole():
    listed = PodResources(CPUSet(range(1, 8)), (PodAllocation("default", "web", {}, CPUSet([4, 5])),))
    assert listed.checkpoint(UIDS).pods == {"uid-web": CPUSet([4, 5])}


def test_a_kubelet_of_policy_none_counts_as_one_with_such_a_file():
    assert judged(None, None, policy_is_none=True) == (Checkpoint("none"), "/configz")
    assert judged(None, PodResources(), policy_is_none=True)[0] == Checkpoint("none")
    assert judged(None, None) == (None, "")


@pytest.mark.parametrize(("answer", "fault"), [("", "403"), ("none", "no answer")])
def test_allocatable_cpus_show_a_static_kubelet_where_configz_does_not_answer(answer, fault):
    mode = decide(ModeInputs(ReportedPolicies(answer, fault, listed="static")))
    assert (mode.name, mode.reasons[0].values) == ("kubelet", ("podresources",))


def test_a_fresh_answer_of_configz_precedes_what_the_socket_showed_before():
    assert decide(ModeInputs(ReportedPolicies("none", "", "None", "none", listed="static"))).name == "owner"


def allocations(agent):
    return agent.sources.kubelet.allocations[1]


def held(agent, uid):
    return {entry.container: entry.cpus for entry in agent.ledger.of_pod(uid) if entry.cpus}


@in_lab()
async def test_without_a_state_file_the_cpus_of_a_static_kubelet_are_held_by_its_socket(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    lab.run("web", "2")
    answers = podresources_server.static([1, 2, 3, 4, 5, 6, 7], web={"app": [2, 3]})
    with podresources_server.serving(lab.pod_resources, **answers):
        async with lab.working() as agent:
            await lab.until(lambda: held(agent, "uid-web") == {"app": CPUSet([2, 3])})
            assert allocations(agent) == "podresources"
            listed = "2 of 7 allocatable CPUs exclusive, 1 pods"
            await lab.until(lambda: source(agent, "kubelet podresources")["detail"] == listed)
            assert source(agent, "kubelet podresources")["state"] == "ok"
            status = agent.status()
            assert status["kubelet"]["allocationsFrom"] == "podresources"
            report = agent._kubelet_report()
            assert report.settings.reserved == CPUSet([0])
            assert [one.cpus for one in report.pods] == [CPUSet([2, 3])]


@in_lab()
async def test_where_configz_is_refused_the_socket_shows_the_policy_and_the_cpus(lab):
    lab.kubelet.faults = {"/configz": 403}
    server = lab.run("web", "2")
    with podresources_server.serving(
        lab.pod_resources, **podresources_server.static([1, 2, 3], web={"app": [2, 3]})
    ):
        async with lab.working() as agent:
            await lab.until(lambda: agent.mode and agent.mode.name == "kubelet")
            await lab.until(lambda: held(agent, "uid-web") == {"app": CPUSet([2, 3])})
    assert len(lab.cpus(server)) == 8


@in_lab()
async def test_a_state_file_of_another_kubelet_is_a_fault_and_the_socket_counts(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    lab.state_file.write_bytes(checkpoint.encode(OTHER))
    lab.run("web", "2")
    with podresources_server.serving(
        lab.pod_resources, **podresources_server.static([1, 2, 3, 4, 5, 6, 7], web={"app": [2, 3]})
    ):
        async with lab.working() as agent:
            await lab.until(lambda: source(agent, "kubelet state file")["state"] == "failing")
            assert "not that of the running kubelet" in source(agent, "kubelet state file")["error"]
            await lab.until(lambda: held(agent, "uid-web") == {"app": CPUSet([2, 3])})
            lab.state_file.write_bytes(checkpoint.encode(SAME))
            await lab.until(lambda: source(agent, "kubelet state file")["state"] == "ok")
            await lab.until(lambda: allocations(agent) == "cpu_manager_state")
            assert held(agent, "uid-web") == {"app": CPUSet([2, 3])}


@pytest.mark.parametrize("required", [True, False])
@in_lab()
async def test_a_missing_socket_is_a_fault_only_if_it_was_configured(lab, required):
    lab.resources_required = required
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    async with lab.working() as agent:
        expected = "failing" if required else "ok"
        await lab.until(lambda: source(agent, "kubelet podresources")["state"] == expected)
        state = source(agent, "kubelet podresources")
        text = state["error"] if required else state["detail"]
        assert text.startswith(f"{lab.pod_resources}: No such file" if required else "no socket")


@in_lab()
async def test_a_socket_that_fails_stops_no_other_source_and_its_last_answer_stays(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    lab.run("web", "2")
    answers = podresources_server.static([1, 2, 3], web={"app": [2, 3]})
    async with lab.working() as agent:
        with podresources_server.serving(lab.pod_resources, **answers):
            await lab.until(lambda: held(agent, "uid-web"))
        lab.pod_resources.touch()  # nothing listens
        await lab.until(lambda: source(agent, "kubelet podresources")["state"] == "failing")
        assert held(agent, "uid-web") == {"app": CPUSet([2, 3])}
        lab.kubelet.pods = [*lab.kubelet.pods, pod("more")]
        await lab.until(lambda: "uid-more" in agent.pods.pods)


@in_lab()
async def test_a_kubelet_of_policy_none_is_not_asked_and_its_former_pods_keep_their_cpus_while_they_run(lab):
    lab.kubelet.configuration["cpuManagerPolicy"] = "static"
    server = lab.run("web", "2")
    with podresources_server.serving(
        lab.pod_resources, **podresources_server.static([1, 2, 3, 4, 5, 6, 7], web={"app": [2, 3]})
    ):
        async with lab.working() as agent:
            await lab.until(lambda: held(agent, "uid-web"))
            lab.drift(server, "2-3")  # as the kubelet pins it
            lab.kubelet.configuration["cpuManagerPolicy"] = "none"
            await lab.until(lambda: "not asked" in source(agent, "kubelet podresources")["detail"])
            await lab.until(lambda: agent.mode.name == "takeover")
            await lab.until(lambda: allocations(agent) == "/configz")
            listed, lab.kubelet.pods = lab.kubelet.pods, []  # a kubelet that has just started
            await lab.until(lambda: not agent.pods.pods)
            agent.sources.kubelet._report_allocations()
            await asyncio.sleep(0.3)
            assert held(agent, "uid-web") == {"app": CPUSet([2, 3])}
            lab.kubelet.pods = listed
            await lab.until(lambda: agent.pods.pods)
            lab.kubelet.pods = []
            lab.end(server)
            await lab.until(lambda: not agent.ledger.entries)
            await lab.until(lambda: agent.mode.name == "owner")
