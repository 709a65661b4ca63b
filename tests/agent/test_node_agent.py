"""The agent beside a kubelet: containers that start unasked are held to their CPUs, whatever fails."""

import asyncio
import errno

import pytest

from corelane.agent import saved_state, state_directory
from corelane.agent.kubelet.kubelet_sources import CONFIGURATION_SECONDS, PROMPTS
from corelane.cpuset import CPUSet
from corelane.kube import keys
from support.cluster_lab import event
from support.node_lab import SECONDS, in_lab, pod, source


@in_lab()
async def test_a_guaranteed_container_gets_exclusive_cpus_and_others_leave_them(lab):
    noise = lab.run("noise")
    async with lab.working() as agent:
        server = lab.run("server", "2")
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        own = lab.cpus(server)
        await lab.until(lambda: lab.cpus(noise) == CPUSet(range(8)))  # LSR shares with BE
        entry = agent.ledger.entries["uid-server", "app"]
        assert (entry.cpus, entry.exclusive) == (own, True)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})


@in_lab()
async def test_drift_is_found_within_a_period_repaired_and_counted(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        own = str(lab.cpus(server))
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        # What brings the runtime's record into line writes the cgroup once more.
        await lab.until(lambda: agent.status()["runtime"]["unrecorded"] == 0 and lab.node.updates)
        lab.drift(server, "0-7")
        await lab.until_cpus(server, own)
        assert agent.drifts.count == 1


@in_lab()
async def test_a_container_without_room_runs_in_the_shared_pool_and_is_shown(lab):
    async with lab.working() as agent:
        lab.run("server", "6")
        await lab.until(lambda: agent.status()["containers"].get("confirmed") == 1)
        lab.run("second", "6")
        without = await lab.until(lambda: agent.status()["podsWithoutRoom"])
        assert [pod["pod"] for pod in without] == ["default/second"]


@in_lab()
async def test_cpus_are_free_again_once_a_container_has_ended(lab):
    server = lab.run("server", "6")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 6)
        lab.kubelet.pods = []
        lab.end(server)
        await lab.until(lambda: not agent.ledger.entries)


@in_lab()
async def test_the_kubelet_is_asked_soon_and_a_few_times_after_a_container_with_exclusive_cpus_ended(lab):
    """No period passes in this test."""

    server, shared = lab.run("server", "6"), lab.run("web")
    async with lab.working(reconcile_seconds=1000.0) as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 6)
        lab.end(server)
        await lab.until(lambda: not agent.kubelet_pods.pods["uid-server"].live)
        lab.kubelet.pods = [one for one in lab.kubelet.pods if one["metadata"]["name"] != "server"]
        await lab.until(lambda: "uid-server" not in agent.ledger.pods)
        prompts = agent.sources.kubelet._prompts
        assert len(prompts) < len(PROMPTS)
        lab.end(shared)
        await lab.until(lambda: not agent.kubelet_pods.pods["uid-web"].live)
        assert agent.sources.kubelet._prompts is prompts, "the end of a pod in the shared pool asks nothing"


@in_lab()
async def test_repairs_need_neither_kubelet_nor_api_server(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        own = str(lab.cpus(server))
    lab.drift(server, "0-7")
    lab.kubelet.faults = {"/pods": 500}
    lab.state_file.write_text('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
    async with lab.working() as agent:
        await lab.until_cpus(server, own)
        assert source(agent, "kubelet pods")["state"] in ("starting", "failing")


@pytest.mark.parametrize(("fault", "text"), [(401, "401"), (403, "nodes/pods"), (500, "500")])
@in_lab()
async def test_a_kubelet_that_refuses_is_shown_and_pods_come_from_the_api_server(lab, fault, text):
    lab.kubelet.faults = {"/pods": fault}
    manifest = pod("server", "2")
    del manifest["metadata"]["uid"]
    made = await lab.client.create(manifest)
    server = lab.start(made["metadata"]["uid"], "server-0")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        state = source(agent, "kubelet pods")
        assert state["state"] == "failing"
        assert text in state["error"]
        lab.kubelet.faults = {}
        await lab.until(lambda: source(agent, "kubelet pods")["state"] == "ok")


@in_lab()
async def test_a_slow_kubelet_stops_no_other_source(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        own = str(lab.cpus(server))
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        lab.kubelet.slow = 5.0
        await lab.until(lambda: source(agent, "kubelet pods")["state"] == "failing")
        lab.drift(server, "0-7")
        await lab.until_cpus(server, own)


@in_lab()
async def test_a_runtime_that_is_down_is_shown_and_drift_is_repaired_by_files(lab):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        own = str(lab.cpus(server))
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        lab.node.refusals = {"ListContainers": "UNAVAILABLE", "UpdateContainerResources": "UNAVAILABLE"}
        lab.drift(server, "0-7")
        await lab.until_cpus(server, own)
        agent.containers_changed()
        await lab.until(lambda: source(agent, "containers")["state"] == "failing")
        lab.node.refusals = {}
        await lab.until(lambda: source(agent, "containers")["state"] == "ok")


@in_lab()
async def test_a_full_disk_moves_no_container_until_the_ledger_is_written(lab, monkeypatch):
    monkeypatch.setattr("corelane.agent.event_loop.LONGEST_RETRY", 0.2)
    full, save = [True], saved_state.save_ledger

    def saving(path, ledger, **how):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, ledger, **how)

    monkeypatch.setattr(saved_state, "save_ledger", saving)

    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["ledger"]["held"])
        status = agent.status()["ledger"]
        assert "No space left on device" in status["fault"]
        assert len(lab.cpus(server)) == 8
        full.clear()
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.until(lambda: agent.status()["ledger"]["fault"] == "")


@in_lab()
async def test_a_ledger_of_a_newer_version_stops_writes_and_stays(lab):
    server = lab.run("server", "2")
    async with lab.working():
        await lab.until(lambda: len(lab.cpus(server)) == 2)
    own, path = lab.cpus(server), lab.path / "state" / "ledger.json"
    newer = path.read_text().replace('"version": 1', '"version": 2')
    path.write_text(newer)
    async with lab.working() as agent:
        await lab.until(lambda: "version 2" in agent.status()["ledger"]["fault"])
        assert lab.cpus(server) == own
        assert "version 2" in await event(lab.client, "here", "LedgerUnwritable")
        assert any(line.startswith(f"{path}: ledger of version 2") for line in lab.reporter.lines)
    assert path.read_text() == newer


@in_lab()
async def test_a_corrupt_ledger_is_rebuilt_without_moving_a_running_exclusive_container(lab):
    server, noise = lab.run("server", "2"), lab.run("noise")
    async with lab.working() as agent:
        await lab.until(lambda: len(lab.cpus(server)) == 2)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
    own, path = lab.cpus(server), lab.path / "state" / "ledger.json"
    path.write_text("{")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        assert agent.ledger.entries["uid-server", "app"].cpus == own
        text = await event(lab.client, "here", "LedgerDamaged")
        assert f"file renamed to {path}.damaged-1 (corrupt)" in text
    assert lab.cpus(server) == own
    assert noise


@in_lab()
async def test_without_its_ledger_a_container_resized_to_an_integer_request_stays_in_the_shared_pool(lab):
    made = await lab.known("server", "500m")
    server = lab.run_known(made, "500m")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        lab.kubelet.pods = [pod("server", "1", uid=made["metadata"]["uid"])]
        assert "CPU request 1000m after a resize" in await event(lab.client, "server", "SharedPoolKept")
        async with asyncio.timeout(SECONDS):
            while keys.RESIZED_IN_POOL not in (annotations := await lab.annotations("server")):
                await asyncio.sleep(0.05)
    (lab.path / "state" / "ledger.json").unlink()
    lab.kubelet.pods = [pod("server", "1", uid=made["metadata"]["uid"], annotations=annotations)]
    copy = lab.run("copy", "1", annotations=annotations)
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        assert len(lab.cpus(copy)) == 1
        assert lab.cpus(server) == agent.ledger.shared_pool


@pytest.mark.parametrize("flag", ["read_only", "ignore"])
@in_lab()
async def test_read_only_and_ignore_write_no_cpuset(lab, flag):
    server = lab.run("server", "2")
    async with lab.working(**{flag: True}) as agent:
        await lab.until(lambda: source(agent, "kubelet pods")["state"] == "ok")
        await lab.until(lambda: agent.runs())
        await asyncio.sleep(0.5)
        assert agent.status()["mode"]["name"] == {"read_only": "read-only", "ignore": "ignored"}[flag]
    assert len(lab.cpus(server)) == 8
    assert lab.node.updates == []


@in_lab()
async def test_a_kubelet_that_turns_static_is_noticed_within_5_seconds(lab):
    assert CONFIGURATION_SECONDS <= 4, "an answer takes less than a second"

    async with lab.working() as agent:
        await lab.until(lambda: agent.mode and agent.mode.name == "owner")
        lab.kubelet.configuration["cpuManagerPolicy"] = "static"
        await lab.until(lambda: agent.mode and agent.mode.name == "kubelet")
        server = lab.run("server", "2")
        await lab.until(lambda: agent.runs())
        await asyncio.sleep(0.5)
    assert len(lab.cpus(server)) == 8


@in_lab()
async def test_cpus_that_come_back_are_given_back(lab):
    noise = lab.run("noise")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        lab.set_online("0-5")
        await lab.until(lambda: agent.ledger.machine.usable == CPUSet(range(6)))
        lab.set_online("0-7")
        await lab.until(lambda: agent.ledger.machine.usable == CPUSet(range(8)))
        await lab.until_cpus(noise, "0-7")


@pytest.mark.parametrize(("online", "left"), [("0,2-7", 1), ("0,3-7", 6)])
@in_lab()
async def test_cpus_that_go_offline_are_lost_and_no_drift(lab, online, left):
    """With all of its CPUs gone a container runs on those of the cgroup above, as the kernel has it."""

    noise = lab.run("noise", labels={"koordinator.sh/qosClass": "LS"})
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        own = lab.cpus(server)
        assert own == CPUSet.parse("1-2")
        lab.set_online(online)
        await lab.until(lambda: agent.ledger.machine.usable == CPUSet.parse(online))
        await lab.until(lambda: len(lab.cpus(server)) == left)
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        lab.set_online("0-7")
        await lab.until_cpus(server, "1-2")
        await lab.until_cpus(noise, "0,3-7")
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        assert agent.drifts.count == 0


@in_lab()
async def test_a_container_that_disappears_while_it_is_changed_ends(lab):
    server = lab.run("server", "2")
    lab.node.refusals = {"UpdateContainerResources": "NOT_FOUND"}
    async with lab.working() as agent:
        await lab.until(lambda: agent.runs())
        lab.kubelet.pods = []
        lab.node.remove(server)
        lab.node.announce(server, 3)
        await lab.until(lambda: not agent.runs())
        await lab.until(lambda: not agent.ledger.entries)


@in_lab()
async def test_the_status_socket_has_mode_0600_and_the_whole_document(lab):
    async with lab.working() as agent:
        path = lab.path / "state" / state_directory.SOCKET_FILE
        await lab.until(path.exists)
        assert path.stat().st_mode & 0o777 == 0o600
        document = await asyncio.to_thread(state_directory.read_status, path.parent)
        assert document.keys() == agent.status().keys()
    assert not path.exists()
