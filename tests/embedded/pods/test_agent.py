"""The agent with the embedded API server and real processes: Kubernetes objects and the kernel's state."""

import asyncio
import errno
import os
import signal
from contextlib import asynccontextmanager

import pytest

from corelane.agent import saved_state
from corelane.cpuset import CPUSet
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.containers.simulated import SimulatedRuntime
from corelane.embedded.pods.pod_agent import Agent, LogNotFound
from corelane.kube import keys, translate
from corelane.kube.client import APIError
from corelane.kube.keys import RESOURCE_STATUS
from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.sources import load
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions
from corelane.node.config import NodeConfig, PoolOptions
from corelane.workload import NUMAPolicy
from support.cluster_lab import (
    SERVE,
    cluster,
    container,
    event,
    events,
    gone,
    phase,
    pod,
    read_pod,
    until,
    working,
)
from support.containers import MINE, both_ways, needs_two_cpus


@asynccontextmanager
async def a_runtime(directory, mode="auto"):
    """Runtime for the agents of a test, one after another; remaining processes are killed at the end."""
    try:
        yield lambda: LocalRuntime.open(directory / "runtime", cgroups=mode, sweep_seconds=0.2)
    finally:
        runtime = await LocalRuntime.open(directory / "runtime", cgroups=mode)
        await runtime.destroy(0)


@asynccontextmanager
async def node(client, directory, opened, **settings):
    agent = Agent(
        client,
        node_name="here",
        machine=load(),
        runtime=await opened(),
        state_dir=directory,
        reconcile_seconds=0.3,
        validate=True,
        **settings,
    )
    async with working(agent):
        yield agent


@asynccontextmanager
async def working_node(directory, mode="auto"):
    async with (
        cluster(directory) as client,
        a_runtime(directory, mode) as opened,
        node(client, directory, opened) as agent,
    ):
        yield client, agent


@pytest.fixture
def lab(tmp_path):
    return working_node(tmp_path)


async def allowed(agent, name):
    """Return the CPUs that /proc shows for the live container of this name."""
    for container_, _ in agent._state_machine.index.live():
        if container_.name == name:
            tasks = await agent._runtime.allowed(container_.id)
            assert tasks
            return [task.cpus for task in tasks]
    return []


async def confirmed(agent, *names):
    async def all_are():
        phases = {key[1]: entry.phase for key, entry in agent.ledger.entries.items()}
        return all(phases.get(name) == "confirmed" for name in names)

    await until(all_are)


@both_ways
@needs_two_cpus
async def test_an_exclusive_container_is_pinned_and_the_kernel_confirms_it(tmp_path, mode):
    async with working_node(tmp_path, mode) as (client, agent):
        await client.create(pod("all", container("shared", SERVE)))
        await confirmed(agent, "shared")
        assert set(await allowed(agent, "shared")) == {MINE}

        await client.create(pod("fast", container("lane", SERVE, "1"), container("side", SERVE, "10m")))
        await phase(client, "fast", "Running")
        await confirmed(agent, "shared", "lane", "side")
        lane = agent.ledger.exclusive
        assert len(lane) == 1
        assert set(await allowed(agent, "lane")) == {lane}
        assert set(await allowed(agent, "shared")) == set(await allowed(agent, "side")) == {MINE - lane}

        made = await read_pod(client, "fast")
        assert translate.request(made).proposal == {"lane": lane}
        published = await client.get(NodeResourceTopology, "here")
        assert translate.state_from_topology(published).exclusive == lane
        assert await event(client, "fast", "CPUsPinned")

        await client.delete(Pod, "fast", namespace="default")
        await gone(client, "fast")

        async def grown():
            return set(await allowed(agent, "shared")) == {MINE}

        await until(grown)


async def test_phases_exit_codes_and_restarts_are_reported(lab):
    client, _ = lab
    await client.create(pod("good", container("c", "exit 0"), restartPolicy="Never"))
    await client.create(pod("bad", container("c", "exit 7"), restartPolicy="OnFailure"))
    await client.create(pod("killed", container("c", "kill -9 $$$$"), restartPolicy="Never"))
    await client.create(pod("none", {**container("c", ""), "command": ["/no/such"]}, restartPolicy="Never"))

    good = await phase(client, "good", "Succeeded")
    ended = good.status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.reason) == (0, "Completed")
    assert condition(good.status.conditions, "Ready").reason == "PodCompleted"

    killed = await phase(client, "killed", "Failed")
    ended = killed.status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.signal) == (137, 9)

    none = await phase(client, "none", "Failed")
    ended = none.status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.reason) == (127, "StartError")
    assert "/no/such" in ended.message

    async def backing_off():
        status = (await read_pod(client, "bad")).status.container_statuses
        waiting = status and status[0].state.waiting
        return waiting and waiting.reason == "CrashLoopBackOff" and status[0]

    shown = await until(backing_off)
    assert shown.restart_count == 1
    assert shown.last_state.terminated.exit_code == 7


async def test_a_running_pod_survives_an_annotation_that_became_invalid(lab):
    client, agent = lab
    await client.create(pod("web", container("c", SERVE)))
    await confirmed(agent, "c")
    broken = {"metadata": {"annotations": {RESOURCE_STATUS: "{"}}}
    await client.patch(Pod, "web", broken, namespace="default")
    await event(client, "web", "AnnotationRestored")
    os.kill((await agent._runtime.containers())[0].pid, signal.SIGKILL)

    async def runs_again():
        status = (await read_pod(client, "web")).status.container_statuses
        return status and status[0].restart_count == 1 and status[0].state.running

    await until(runs_again)


async def test_environment_config_maps_and_arguments_reach_the_process(lab):
    client, agent = lab
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
    ]
    script = 'echo "$WHO/$WHERE/$IP/$KEY/$0/$(pwd)"'
    made = {**container("c", script, env=env, workingDir="/usr"), "args": ["<$(WHO)>"]}
    await client.create(pod("web", made, restartPolicy="Never"))
    await event(client, "web", "Failed")
    waiting = (await phase(client, "web", "Pending")).status.container_statuses[0].state.waiting
    assert waiting.reason == "CreateContainerConfigError"
    assert waiting.message == 'configmap "settings" not found'
    settings = {"name": "settings", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": {"k": "v"}})
    done = await phase(client, "web", "Succeeded")
    log = b"".join([part async for part in await agent.logs("default", "web", "c")])
    assert log.decode() == f"web/here/{done.status.pod_ip}/v/<web>//usr\n"


async def test_logs_of_the_current_and_the_previous_run(lab, tmp_path):
    client, agent = lab
    once = tmp_path / "ran"
    script = f"if [ -e {once} ]; then echo second; {SERVE}; fi; touch {once}; echo first; exit 1"
    await client.create(pod("web", container("c", script)))

    async def restarted():
        found = (await read_pod(client, "web")).status.container_statuses
        return found and found[0].restart_count == 1 and found[0].state.running

    await until(restarted)

    async def text(**options):
        return b"".join([part async for part in await agent.logs("default", "web", "c", **options)])

    async def second():
        return await text() == b"second\n"

    await until(second)
    assert await text(previous=True) == b"first\n"
    with pytest.raises(LogNotFound, match="is waiting to start"):
        await agent.logs("default", "web", "nobody")
    with pytest.raises(LogNotFound, match="previous terminated container"):
        await agent.logs("default", "nobody", "c", previous=True)

    following = asyncio.create_task(text(follow=True))
    await asyncio.sleep(0.2)
    assert not following.done()
    await client.delete(Pod, "web", namespace="default")
    assert await asyncio.wait_for(following, 120) == b"second\n"


async def test_a_terminating_pod_gets_sigterm_and_its_grace_period(lab, tmp_path):
    client, agent = lab
    mark = tmp_path / "term"
    script = f"trap 'echo > {mark}' TERM; while :; do sleep 0.05; done"
    await client.create(pod("stubborn", container("c", script), terminationGracePeriodSeconds=1))
    await phase(client, "stubborn", "Running")
    await client.delete(Pod, "stubborn", namespace="default")
    await gone(client, "stubborn")
    assert mark.exists()

    async def tidy():
        return await agent._runtime.containers() == []

    await until(tidy)


async def test_queued_starts_are_dropped_when_the_pod_is_deleted(lab, tmp_path):
    client, agent = lab
    mark = tmp_path / "started"
    execution = agent._lifecycle
    turns = [await execution._starts.acquire() for _ in range(execution._starts._value)]
    await client.create(pod("p", container("c", f"echo > {mark}; sleep 60")))

    async def waits():
        return bool(execution._tasks._tasks)

    async def is_doomed():
        return any(one.metadata.deletion_timestamp for one in execution._pods.values())

    await until(waits)
    await client.delete(Pod, "p", namespace="default")
    await until(is_doomed)
    for _ in turns:
        execution._starts.release()
    await gone(client, "p")
    assert not mark.exists()


async def test_the_node_is_registered_with_facts_and_a_lease(lab):
    client, agent = lab
    found = await client.get(Node, "here")
    assert found.metadata.labels["corelane.io/runtime"] == "local-process"
    assert found.metadata.labels["kubernetes.io/hostname"] == "here"
    assert found.status.capacity["cpu"] == str(len(MINE))
    assert found.status.allocatable["pods"] == "110"
    assert condition(found.status.conditions, "Ready").status == "True"
    assert {one.type for one in found.status.addresses} == {"InternalIP", "Hostname"}
    lease = await client.get(Lease, "here", "kube-node-lease")
    assert lease.spec.holder_identity == "here"
    assert "corelane.io/simulated" not in [one.key for one in found.spec.taints]

    await client.delete(Node, "here")
    await agent._heartbeat._beat(check=True)
    assert (await client.get(Node, "here")).metadata.uid == agent._heartbeat.uid


async def test_a_damaged_topology_is_published_again(lab):
    client, agent = lab
    published = await until(lambda: read_topology(client))
    others = {"metadata": {"annotations": {"x": "y"}}, "zones": [*zones_of(published), EXTRA_ZONE]}
    await client.patch(NodeResourceTopology, "here", others)
    version = (await read_topology(client)).metadata.resource_version
    await say_again(agent)
    assert (await read_topology(client)).metadata.resource_version == version, "nothing was damaged"
    for damage in ({keys.CPU_ALLOCATIONS: "{", keys.MACHINE: "[]"}, {keys.MACHINE: None}):
        await client.patch(NodeResourceTopology, "here", {"metadata": {"annotations": damage}})
        assert (await read_topology(client)).metadata.annotations != published.metadata.annotations
        await say_again(agent)
        mended = (await read_topology(client)).metadata.annotations
        assert mended == published.metadata.annotations | {"x": "y"}
    await client.delete(NodeResourceTopology, "here")
    await say_again(agent)
    assert (await read_topology(client)).metadata.annotations == published.metadata.annotations


EXTRA_ZONE = {"name": "someones", "type": "Rack", "resources": []}


def zones_of(published):
    return [{"name": zone.name, "type": zone.type, "resources": []} for zone in published.zones]


async def say_again(agent):
    await agent._heartbeat._beat(check=True)
    await agent._publication.idle(120)


async def read_topology(client):
    found = (await client.list(NodeResourceTopology)).items
    return found[0] if found else None


async def test_a_node_marked_not_ready_posts_its_status_again(lab):
    client, agent = lab
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await client.patch(Node, "here", lost, kind_of_patch="strategic", subresource="status")
    await agent._heartbeat._beat(check=True)
    ready = condition((await client.get(Node, "here")).status.conditions, "Ready")
    assert (ready.status, ready.reason) == ("True", "KubeletReady")


@needs_two_cpus
async def test_a_restart_adopts_running_pods_and_stops_deleted_ones(tmp_path):
    async with cluster(tmp_path) as client, a_runtime(tmp_path) as opened:
        async with node(client, tmp_path, opened) as agent:
            await client.create(pod("fast", container("lane", SERVE, "1")))
            await client.create(pod("job", container("c", "sleep 0.5; exit 5"), restartPolicy="Never"))
            await client.create(pod("old", container("c2", SERVE)))
            await phase(client, "job", "Running")
            await confirmed(agent, "lane", "c2")
            lane = agent.ledger.exclusive
            pids = {one.name: one.pid for one in await agent._runtime.containers()}
        await client.delete(Pod, "old", namespace="default", grace_seconds=0)
        await asyncio.sleep(0.8)
        async with node(client, tmp_path, opened) as agent:
            job = await phase(client, "job", "Failed")
            assert job.status.container_statuses[0].state.terminated.exit_code == 5
            await confirmed(agent, "lane")
            assert agent.ledger.exclusive == lane
            assert set(await allowed(agent, "lane")) == {lane}

            async def swept():
                return {one.name for one in await agent._runtime.containers()} == {"lane", "c"}

            await until(swept)
            now = {one.name: one.pid for one in await agent._runtime.containers()}
            assert now["lane"] == pids["lane"]
            fast = await read_pod(client, "fast")
            assert fast.status.container_statuses[0].restart_count == 0


@needs_two_cpus
async def test_a_corrupt_ledger_is_renamed_and_rebuilt_from_running_containers(tmp_path):
    async with cluster(tmp_path) as client, a_runtime(tmp_path) as opened:
        async with node(client, tmp_path, opened) as agent:
            await client.create(pod("fast", container("lane", SERVE, "1")))
            await confirmed(agent, "lane")
            lane = agent.ledger.exclusive
        (tmp_path / "ledger.json").write_text('{"half": ')
        async with node(client, tmp_path, opened) as agent:
            await confirmed(agent, "lane")
            assert agent.ledger.exclusive == lane
            assert (tmp_path / "ledger.json.damaged-1").read_text() == '{"half": '
            assert "rebuilt from the running containers" in await event(client, "here", "LedgerDamaged")
            assert (await read_pod(client, "fast")).status.container_statuses[0].restart_count == 0


async def test_shutdown_stops_pods_only_with_stop_pods(tmp_path):
    async with cluster(tmp_path) as client, a_runtime(tmp_path) as opened:
        async with node(client, tmp_path, opened) as agent:
            await client.create(pod("web", container("c", SERVE)))
            await confirmed(agent, "c")
        runtime = await opened()
        assert [one.state for one in await runtime.containers()] == ["running"]
        await runtime.close()
        async with node(client, tmp_path, opened) as agent:
            await confirmed(agent, "c")
            await agent.shutdown(stop_pods=True)
        runtime = await opened()
        assert [one.state for one in await runtime.containers()] == ["exited"]
        await runtime.close()
        assert await read_pod(client, "web")
        async with node(client, tmp_path, opened) as agent:
            await confirmed(agent, "c")
            shown = (await phase(client, "web", "Running")).status.container_statuses[0]
            assert shown.restart_count == 1


async def test_a_simulated_node_is_marked_and_confirms_no_cpus(tmp_path):
    async with cluster(tmp_path) as client:
        machine = parse_spec("socket:2 numa:1 core:4 smt:2")

        def make():
            return Agent(
                client,
                node_name="far",
                machine=machine,
                runtime=SimulatedRuntime(tmp_path),
                state_dir=tmp_path,
                reconcile_seconds=0.2,
                validate=True,
            )

        async with working(make()) as agent:
            found = await client.get(Node, "far")
            assert found.metadata.labels["corelane.io/simulated"] == "true"
            assert ("corelane.io/simulated", "NoSchedule") in [
                (one.key, one.effect) for one in found.spec.taints
            ]
            assert "no process runs" in found.metadata.annotations["corelane.io/notice"]
            await client.create(pod("sim", {**container("c", "", "4"), "command": []}, node="far"))
            running = await phase(client, "sim", "Running")
            assert running.status.pod_ip == ""
            await asyncio.sleep(0.6)
            entry = next(iter(agent.ledger.entries.values()))
            assert (len(entry.cpus), entry.phase) == (4, "applied")
            assert "CPUsPinned" not in [reason for reason, _ in await events(client, "sim")]
        async with working(make()) as agent:
            assert next(iter(agent.ledger.entries.values())).cpus == entry.cpus
            assert (await phase(client, "sim", "Running")).status.container_statuses[0].restart_count == 0
            await client.delete(Pod, "sim", namespace="default")
            await gone(client, "sim")


async def test_settings_invalid_on_the_machine_are_rejected_at_start(tmp_path):
    from corelane.node import NodeConfigError
    from corelane.node.config import NodeConfig

    async with cluster(tmp_path) as client:
        with pytest.raises(NodeConfigError, match="reserved"):
            Agent(
                client,
                node_name="far",
                machine=parse_spec("core:2"),
                runtime=SimulatedRuntime(),
                config=NodeConfig(reserved=CPUSet([7])),
                state_dir=tmp_path,
            )


async def test_an_agent_waits_for_the_api_server(tmp_path):
    async with cluster(tmp_path) as client:
        real, calls = client.create, []

        async def failing(obj, **options):
            calls.append(obj["kind"])
            if len(calls) <= 1:
                raise APIError(503, "ServiceUnavailable", "not yet")
            return await real(obj, **options)

        client.create = failing
        agent = Agent(
            client,
            node_name="far",
            machine=parse_spec("core:2"),
            runtime=SimulatedRuntime(),
            state_dir=tmp_path,
        )
        async with working(agent):
            assert calls[:2] == ["Node", "Node"]


async def test_devices_are_allocatable_assigned_near_the_cpus_and_removed_with_the_setting(tmp_path):
    nic = "example.com/nic"

    def make(client, devices):
        return Agent(
            client,
            node_name="far",
            machine=parse_spec("socket:2 numa:1 core:4 smt:2 mem:8G"),
            runtime=SimulatedRuntime(tmp_path),
            config=NodeConfig(
                "pools",
                devices=devices,
                memory=MemoryOptions("Static", {0: {"memory": 1 << 30}}),
                pools=PoolOptions(numa=NUMAPolicy.SINGLE_NUMA_NODE),
            ),
            state_dir=tmp_path,
            validate=True,
        )

    async def offered(client):
        status = (await client.get(Node, "far")).status
        return status.capacity, status.allocatable

    async with cluster(tmp_path) as client:
        async with working(make(client, {nic: {"eth0": 1, "eth1": 2}, "example.com/gpu": {"g": 1}})) as agent:
            capacity, allocatable = await offered(client)
            assert (capacity[nic], capacity["example.com/gpu"], allocatable[nic]) == ("2", "1", "2")
            assert (capacity["memory"], allocatable["memory"]) == ("16Gi", "15Gi")
            await client.patch(
                Node, "far", {"status": {"capacity": {"other.io/x": "1"}}}, subresource="status"
            )
            amounts = {"cpu": "4", "memory": "1Gi", nic: "1"}
            one = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
            for name in ("first", "second"):
                await client.create(pod(name, one, node="far"))
                await phase(client, name, "Running")
            entries = list(agent.ledger.entries.values())
            assert [dict(entry.devices) for entry in entries] == [{nic: ("eth0",)}, {nic: ("eth1",)}]
            assert [str(entry.mems) for entry in entries] == ["0", "1"]
            assert [str(entry.cpus) for entry in entries] == ["1-2,9-10", "4-5,12-13"]
            await client.create(pod("third", one, node="far"))
            assert "lack example.com/nic" in (await phase(client, "third", "Failed")).status.message
        async with working(make(client, {nic: {"eth0": 1, "eth1": 2}})):
            capacity, allocatable = await offered(client)
            assert (capacity[nic], capacity["other.io/x"]) == ("2", "1")
            assert "example.com/gpu" not in capacity | allocatable


async def test_a_full_disk_is_reported_and_no_pod_starts_until_the_ledger_is_written(tmp_path, monkeypatch):
    full, save = [], saved_state.save_ledger

    def saving(path, ledger, **how):
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(path, ledger, **how)

    async def pressure(client, wanted):
        async def there():
            found = condition((await client.get(Node, "far")).status.conditions, "DiskPressure")
            return found if found.status == wanted else None

        return await until(there)

    monkeypatch.setattr(saved_state, "save_ledger", saving)
    monkeypatch.setattr("corelane.agent.event_loop.LONGEST_RETRY", 0.2)
    async with cluster(tmp_path) as client:
        agent = Agent(
            client,
            node_name="far",
            machine=parse_spec("core:4"),
            runtime=SimulatedRuntime(tmp_path),
            state_dir=tmp_path,
        )
        async with working(agent):
            before = await pressure(client, "False")
            assert before.reason == "KubeletHasNoDiskPressure"
            full.append(True)
            await client.create(pod("late", {"name": "c", "image": "none"}, node="far"))
            told = await pressure(client, "True")
            assert "ledger.json: No space left on device; no pod is started" in told.message
            assert "No space left on device" in await event(client, "far", "LedgerUnwritable")
            assert (await read_pod(client, "late")).status.phase == "Pending"
            full.clear()
            await phase(client, "late", "Running")
            assert (await pressure(client, "False")).message == "the ledger can be written"
            assert await event(client, "far", "LedgerWritable")
            reasons = [reason for reason, _ in await events(client, "far")]
            assert reasons.count("LedgerUnwritable") == 1
