"""The runtime beside a kubelet, against a fake of CRI and of cgroup v2: what it asks for, and how often."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager

import pytest

from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate, Runtime, RuntimeFailure, UnknownContainer
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.cri.values import CRIError
from support.fake_node import CREATED, EXITED, RUNNING, FakeNode

LOW, HIGH = CPUSet([0, 1]), CPUSet([6, 7])
A, B = "a" * 64, "b" * 64


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


@asynccontextmanager
async def connected(node, **options):
    runtime = CRIRuntime(node.view, f"unix://{node.socket}", **options)
    try:
        yield runtime
    finally:
        await runtime.close()


def play(node, scene, **options):
    async def whole():
        async with asyncio.timeout(180), connected(node, **options) as runtime:
            await scene(runtime)

    with node.serving():
        asyncio.run(whole())


async def until(condition):
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


class Listener:
    """What a runtime has reported so far."""

    def __init__(self, runtime: Runtime) -> None:
        self.seen: list[tuple[str, str]] = []
        self._events = runtime.wait_events()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for status in self._events:
            self.seen.append((status.id, status.state))


def test_with_nothing_changed_a_period_costs_one_list_and_no_call_per_container(node):
    for number in range(40):
        node.add(f"{number:064}")

    async def scene(runtime):
        first = await runtime.containers()
        assert len(first) == node.calls["ContainerStatus"] == 40
        node.calls.clear()
        for _ in range(3):
            assert await runtime.containers() == first
            for status in first:
                assert (await runtime.observe(status.id)).populated
        assert node.calls == {"ListContainers": 3}

    play(node, scene)


def test_without_events_containers_are_listed_once_a_period_and_changes_found_by_it(tmp_path):
    node = FakeNode(tmp_path, events=False)
    node.add(A)

    async def scene(runtime):
        listener = Listener(runtime)
        await until(lambda: (A, "running") in listener.seen)
        began, lists = time.monotonic(), node.calls["ListContainers"]
        node.add(B)
        await until(lambda: (B, "running") in listener.seen)
        node.remove(A)
        await until(lambda: (A, "exited") in listener.seen)
        assert not runtime.follows_events
        elapsed = time.monotonic() - began
        assert node.calls["ListContainers"] - lists <= elapsed / 0.2 + 2
        assert node.calls["ContainerStatus"] == 2

    play(node, scene, list_seconds=0.2)


def test_lists_by_the_agent_itself_are_not_doubled(tmp_path):
    node = FakeNode(tmp_path, events=False)

    async def scene(runtime):
        Listener(runtime)
        await until(lambda: node.calls["ListContainers"] == 1)
        for _ in range(6):
            await runtime.containers()
            await asyncio.sleep(0.3)
        assert node.calls["ListContainers"] <= 8

    play(node, scene, list_seconds=2.0)


def test_a_start_and_an_end_are_reported_by_events_without_a_list(node):
    async def scene(runtime):
        listener = Listener(runtime)
        await until(lambda: runtime.follows_events)
        await asyncio.sleep(1.2)  # past the lists that cover the stream's beginning
        lists = node.calls["ListContainers"]
        node.add(A)
        node.announce(A, 1)
        await until(lambda: listener.seen == [(A, "running")])
        node.set_state(A, EXITED)
        node.announce(A, 2)
        await until(lambda: listener.seen[1:] == [(A, "exited")])
        node.remove(A)
        node.announce(A, 3)
        node.announce("sandbox", 1)
        await until(lambda: node.calls["ContainerStatus"] == 4)
        assert (len(listener.seen), node.calls["ListContainers"]) == (2, lists)

    play(node, scene)


def test_an_event_that_comes_before_its_state_waits_for_it(node):
    node.add(A, state=CREATED)

    async def scene(runtime):
        listener = Listener(runtime)
        await until(lambda: (A, "created") in listener.seen and runtime.follows_events)
        node.announce(A, 1)
        await until(lambda: node.calls["ContainerStatus"] >= 2)
        node.set_state(A, RUNNING)
        await until(lambda: (A, "running") in listener.seen)

    play(node, scene)


def test_what_happened_while_no_stream_ran_is_found_when_it_runs_again(node):
    node.add(A)

    async def scene(runtime):
        listener = Listener(runtime)
        await until(lambda: (A, "running") in listener.seen and node.listeners)
        await asyncio.sleep(1.2)
        node.add(B)
        node.remove(A)
        node.interrupt()
        await until(lambda: {(B, "running"), (A, "exited")} <= set(listener.seen))

    play(node, scene)


def test_a_list_older_than_an_event_takes_nothing_back(node):
    node.add(A)

    async def scene(runtime):
        await runtime.containers()
        node.set_state(A, EXITED)
        (status,) = await runtime.containers()
        assert (status.state, status.exit_code) == ("exited", 3)
        node.set_state(A, RUNNING)
        (status,) = await runtime.containers()
        assert status.state == "exited"

    play(node, scene)


def test_a_container_that_had_ended_before_the_first_list_costs_no_call(node):
    node.add(A, state=EXITED)

    async def scene(runtime):
        (status,) = await runtime.containers()
        assert (status.state, status.exit_code) == ("exited", 255)
        assert "exit code unknown" in status.message
        assert node.calls["ContainerStatus"] == 0
        observed = await runtime.observe(A)
        assert not observed.populated, "its cgroup is still there, and empty"

    play(node, scene)


def test_a_container_whose_status_is_refused_hides_no_other_one(node):
    node.add(A)
    node.add(B)
    status = node.status

    def refusing(request, context):
        if A.encode() in request:
            context.abort("UNKNOWN", "failed to load its specification")
        return status(request, context)

    node.status = refusing

    async def scene(runtime):
        listed = {status.id: status.state for status in await runtime.containers()}
        assert listed == {A: "running", B: "running"}

    play(node, scene)


def test_containers_without_the_kubelets_labels_belong_to_their_sandboxs_pod(node):
    node.labelled = False
    node.add(A)

    async def scene(runtime):
        (status,) = await runtime.containers()
        assert (status.pod_uid, status.namespace, status.pod) == ("pod1", "default", "web")

    play(node, scene)


def test_an_update_sends_only_what_is_given(node):
    node.add(A)

    async def scene(runtime):
        for change in (
            ResourceUpdate(cpus=LOW),
            ResourceUpdate(mems=CPUSet([0])),
            ResourceUpdate(quota_us=None),
            ResourceUpdate(quota_us=50_000, period_us=20_000),
            ResourceUpdate(shares_milli=1500),
        ):
            await runtime.update(A, change)
        assert [resources for _, resources in node.updates] == [
            {6: [b"0-1"]},
            {7: [b"0"]},
            {2: [(1 << 64) - 1]},
            {1: [20_000], 2: [50_000]},
            {3: [1536]},
        ]

    play(node, scene)


def test_a_burst_for_which_cri_has_no_field_is_written_to_the_cgroup(node):
    node.add(A)

    async def scene(runtime):
        await runtime.update(A, ResourceUpdate(quota_us=50_000, burst_us=20_000))
        observed = await runtime.observe(A)
        assert (observed.quota_us, observed.burst_us) == (50_000, 20_000)
        assert node.updates == [(A, {2: [50_000]})]
        await runtime.update(A, ResourceUpdate(burst_us=0))
        assert (await runtime.observe(A)).burst_us == 0
        assert len(node.updates) == 1, "nothing to record"

    play(node, scene)


@pytest.mark.parametrize("code", ["UNKNOWN", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"])
def test_where_the_runtime_fails_the_cgroup_is_written_and_the_record_follows(node, code):
    node.add(A)

    async def scene(runtime):
        node.refusals["UpdateContainerResources"] = code
        await runtime.update(A, ResourceUpdate(cpus=HIGH))
        assert (await runtime.observe(A)).cpus == HIGH
        assert runtime.unrecorded == [A]
        node.refusals.clear()
        await until(lambda: not runtime.unrecorded)
        assert node.updates == [(A, {6: [b"6-7"]})]

    play(node, scene)


def test_of_several_writes_the_last_is_recorded(node):
    node.add(A)

    async def scene(runtime):
        node.refusals["UpdateContainerResources"] = "UNAVAILABLE"
        await runtime.write_cgroup(A, ResourceUpdate(cpus=LOW, quota_us=None))
        await runtime.write_cgroup(A, ResourceUpdate(cpus=HIGH))
        await runtime.write_cgroup(A, ResourceUpdate(quota_us=30_000), recorded=True)
        node.refusals.clear()
        await until(lambda: not runtime.unrecorded)
        record: dict = {}
        for _, resources in node.updates:
            record |= resources
        assert record[6] == [b"6-7"]
        assert record.get(2, [30_000]) == [30_000], "as recorded otherwise, or brought into line"

    play(node, scene)


def test_what_is_not_recorded_yet_goes_with_the_next_update(node):
    """The runtime applies its whole record: an update of CPUs alone would bring the old quota back."""
    node.add(A)

    async def scene(runtime):
        node.refusals["UpdateContainerResources"] = "UNAVAILABLE"
        await runtime.update(A, ResourceUpdate(quota_us=30_000))
        await runtime.update(A, ResourceUpdate(cpus=LOW))
        node.refusals.clear()
        await runtime.update(A, ResourceUpdate(cpus=HIGH))
        first, last = node.updates[0][1], node.updates[-1][1]
        assert first[2] == [30_000], "the first that arrives has the quota"
        assert last[6] == [b"6-7"]
        assert runtime.unrecorded == []

    play(node, scene)


def test_a_container_without_a_cgroup_here_is_changed_by_cri_alone(node):
    node.add(A)
    node.vanish(A)

    async def scene(runtime):
        await runtime.containers()
        await runtime.update(A, ResourceUpdate(cpus=LOW))
        assert node.updates == [(A, {6: [b"0-1"]})]

    play(node, scene)


def test_a_slow_runtime_delays_an_update_by_the_calls_deadline_at_most(node):
    node.add(A)

    async def scene(runtime):
        await runtime.containers()
        answer = threading.Event()
        node.update = lambda *_: answer.wait(30) and b""
        try:
            await runtime.update(A, ResourceUpdate(cpus=HIGH))
            assert not answer.is_set()
            assert (await runtime.observe(A)).cpus == HIGH
        finally:
            answer.set()

    play(node, scene, call_seconds=0.5)


def test_a_change_is_applied_before_the_runtime_has_recorded_it(node):
    node.add(A)
    node.add(B)
    node.vanish(B)

    async def scene(runtime):
        await runtime.containers()
        answer, record = threading.Event(), node.update
        node.update = lambda *request: answer.wait(30) and record(*request)
        try:
            await runtime.apply(A, ResourceUpdate(cpus=HIGH))
            assert (await runtime.observe(A)).cpus == HIGH
            assert runtime.unrecorded == [A]
        finally:
            answer.set()
        await until(lambda: not runtime.unrecorded)
        assert node.updates == [(A, {6: [b"6-7"]})]
        await runtime.apply(B, ResourceUpdate(cpus=LOW))
        assert node.updates[1:] == [(B, {6: [b"0-1"]})], "without a cgroup here, by CRI alone"

    play(node, scene)


def test_a_container_that_vanishes_during_an_update_is_unknown(node):
    node.add(A)

    async def scene(runtime):
        await runtime.containers()
        node.remove(A)
        with pytest.raises(UnknownContainer):
            await runtime.update(A, ResourceUpdate(cpus=LOW))
        assert await runtime.observe(A) is None
        node.add(B)
        await runtime.containers()
        node.refusals["UpdateContainerResources"] = "UNKNOWN"
        node.vanish(B)
        with pytest.raises(UnknownContainer):
            await runtime.update(B, ResourceUpdate(cpus=LOW))

    play(node, scene)


def test_what_was_removed_is_observed_as_long_as_its_cgroup_has_processes(node):
    node.add(A)

    async def scene(runtime):
        await runtime.containers()
        removed = node.containers.pop(A)
        assert await runtime.containers() == []
        assert (await runtime.observe(A)).populated
        node.containers[A] = removed
        node.vanish(A)
        assert await runtime.observe(A) is None

    play(node, scene)


def test_a_container_without_a_cgroup_here_is_refused_with_the_remedy(node):
    node.add(A)
    node.vanish(A)

    async def scene(runtime):
        (status,) = await runtime.containers()
        assert status.cgroup == ""
        assert await runtime.observe(A) is None
        with pytest.raises(RuntimeFailure, match=r"no cgroup below .*; mount the node's /sys/fs/cgroup"):
            await runtime.write_cgroup(A, ResourceUpdate(cpus=LOW))

    play(node, scene)


def test_a_container_that_has_not_started_is_changed_in_the_record_alone(node):
    node.add(A, state=CREATED)

    async def scene(runtime):
        await runtime.containers()
        await runtime.update(A, ResourceUpdate(cpus=LOW, burst_us=1000))
        assert node.updates == [(A, {6: [b"0-1"]})]
        node.refusals["UpdateContainerResources"] = "UNKNOWN"
        with pytest.raises(RuntimeFailure, match="refused by the test"):
            await runtime.update(A, ResourceUpdate(cpus=LOW))

    play(node, scene)


async def test_a_runtime_that_is_down_is_a_failure_with_its_socket_and_listeners_wait_for_it(node):
    node.add(A)

    async with asyncio.timeout(180), connected(node) as runtime:
        with pytest.raises(CRIError, match=r"cri\.sock: No such file or directory; check that") as e:
            await runtime.containers()
        assert e.value.code == "UNAVAILABLE"
        listener = Listener(runtime)
        await asyncio.sleep(0.5)
        with node.serving():
            await until(lambda: (A, "running") in listener.seen)


def test_closing_ends_listeners_and_leaves_no_task(node):
    node.add(A)

    async def whole():
        async with connected(node) as runtime:
            listener = Listener(runtime)
            await until(lambda: listener.seen)
        await listener.task
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # gRPC's end a moment later

    with node.serving():
        asyncio.run(whole())
