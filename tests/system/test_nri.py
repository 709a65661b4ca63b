"""The NRI plugin at a real containerd: containers start on their CPUs, and nothing hangs or is lost.

Effective CPUs are read from the kernel; the runtime's record through CRI. The machine needs CPUs 0 and 1.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from grpclib.exceptions import GRPCError

from corelane.kernel import container_paths
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.nri.values import Answer, ContainerCreating, Synchronized
from support import containerd
from support.containerd import Containerd
from support.cri_pods import Pod
from support.nri_agent import PinningAgent, pinned
from support.protobuf import decode

pytestmark = pytest.mark.system

UID = "11111111-2222-4333-8444-555555555555"
REPORT_CPUS = (
    "/bin/busybox",
    "sh",
    "-c",
    "/bin/busybox grep Cpus_allowed_list /proc/self/status > /cpus; exec /bin/busybox sleep 600",
)


@pytest.fixture(params=containerd.HAVE_NRI)
def lab(request, tmp_path) -> Iterator[Containerd]:
    if {0, 1} - os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    with containerd.running(tmp_path, request.param) as lab:
        yield lab


@pytest.fixture
def pod(lab) -> Pod:
    return lab.run_pod("web", UID)


def agent(lab: Containerd, **more: object) -> PinningAgent:
    return PinningAgent(lab.home, lab.nri_socket, {"pinned": "1"}, **more)


def effective(lab: Containerd, container: str) -> str:
    """The CPUs that the kernel gives a running container."""
    group = lab.cgroup(container)
    names = ("cpuset.effective_cpus", "cpuset.cpus.effective")
    return next((group / name).read_text().strip() for name in names if (group / name).exists())


def own_report(lab: Containerd, container: str) -> str:
    """The CPUs that a container's first process saw, once it has written them."""
    file = Path(f"/proc/{lab.pid(container)}/root/cpus")
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return file.read_text().split()[1]


def assert_held(lab: Containerd, container: str, cpus: str) -> None:
    """Kernel and the runtime's OCI specification agree on a running container's CPUs."""
    assert effective(lab, container) == cpus
    assert lab.recorded_cpu(container)["cpus"] == cpus


def status_cpus(lab: Containerd, container: str) -> str:
    """The CPUs in a container's CRI status: what was requested at its creation, or set by the last update."""
    status = decode(lab.call("ContainerStatus", {1: container})[1][0])
    return decode(decode(status[16][0])[1][0]).get(6, [b""])[0].decode()


def test_a_container_runs_on_its_cpus_from_its_first_instruction(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        container = lab.run_container(pod, "pinned", command=REPORT_CPUS, cpus="0-1", shares=512)
        assert own_report(lab, container) == "1"
        assert_held(lab, container, "1")
        assert lab.recorded_cpu(container)["shares"] == 512
        pinning.wait(lambda: "ContainerStarted" in pinning.kinds())
        [creating] = [event for event in pinning.seen if type(event).__name__ == "ContainerCreating"]
        assert (creating.pod.uid, creating.container.pod_uid, creating.container.name) == (UID, UID, "pinned")
        assert creating.container.resources.cpus == "0-1"
        assert creating.container.cgroup.endswith(container)
        assert creating.pod.cgroup_parent == f"/{lab.parent}/kubepods/pod{UID}"
        assert creating.timeout == pytest.approx(2, abs=0.5)
        lab.stop(container)
        lab.remove(container)
        pinning.wait(lambda: pinning.kinds()[-2:] == ["ContainerStopped", "ContainerRemoved"])
    assert not [report for report in pinning.reports if report.startswith("failed")]


def test_the_answer_shrinks_other_containers_before_the_new_one_exists(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        old = lab.run_container(pod, "shared", cpus="0-1")
        assert effective(lab, old) == "0-1"
        pinning.shrink = {old: "0", "f" * 64: "0"}
        new = lab.create_container(pod, "pinned")
        assert_held(lab, old, "0")
        assert status_cpus(lab, old) == "0"
        lab.start(new)
        assert_held(lab, new, "1")


def test_an_answer_of_many_updates_is_read_by_the_runtime(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        old = lab.run_container(pod, "shared", cpus="0-1")
        pinning.shrink = {f"{number:064x}": "0" for number in range(2000)} | {old: "0"}
        new = lab.run_container(pod, "pinned")
        assert_held(lab, old, "0")
        assert_held(lab, new, "1")
        assert not [report for report in pinning.reports if report.startswith("lost")]


def test_containers_from_before_are_updated_at_the_synchronization(lab, pod):
    container = lab.run_container(pod, "pinned", cpus="0-1", quota=50_000)
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        pinning.wait_report("Synchronized: answered")
        [event] = [event for event in pinning.seen if type(event).__name__ == "Synchronized"]
        [seen] = event.containers
        assert (seen.id, seen.state, seen.resources.cpus) == (container, "running", "0-1")
        assert seen.pid == lab.pid(container)
        assert [(p.uid, p.id) for p in event.pods] == [(UID, pod.id)]
        until_held(lab, container, "1")
        assert lab.recorded_cpu(container)["quota"] == 50_000


def until_held(lab: Containerd, container: str, cpus: str) -> None:
    """The runtime applies a synchronization's updates after the answer."""
    deadline = time.monotonic() + 30
    while effective(lab, container) != cpus:
        assert time.monotonic() < deadline, effective(lab, container)
        time.sleep(0.05)
    assert_held(lab, container, cpus)


def test_a_client_that_sets_other_cpus_is_overruled_and_its_quota_is_kept(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        container = lab.run_container(pod, "pinned")
        assert status_cpus(lab, container) == ""  # containerd does not put NRI's adjustment into it
        lab.update(container, cpus="0-1", quota=60_000)
        assert_held(lab, container, "1")
        assert status_cpus(lab, container) == "1"
        assert lab.recorded_cpu(container)["quota"] == 60_000
        lab.update(container, quota=70_000)
        assert_held(lab, container, "1")
        assert lab.recorded_cpu(container)["quota"] == 70_000


def test_after_a_restart_of_containerd_the_plugin_comes_back(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        before = lab.run_container(pod, "pinned")
        lab.restart()
        pinning.wait_report("connected: containerd", 2)
        after = lab.run_container(pod, "pinned", attempt=1)
        assert_held(lab, before, "1")
        assert_held(lab, after, "1")
        assert pinning.connection.status.synchronizations == 2


@contextmanager
def process(lab: Containerd, *pairs: str) -> Iterator[subprocess.Popen]:
    """An agent as a process of its own."""
    command = [sys.executable, "-m", "support.nri_agent", lab.home, lab.nri_socket, *pairs]
    environment = dict(os.environ) | {
        "PYTHONPATH": f"{Path(__file__).parents[2]}/src:{Path(__file__).parents[1]}"
    }
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def read_until(agent: subprocess.Popen, line: str) -> None:
    for text in agent.stdout:
        if text.startswith(line):
            return
    pytest.fail(f"the agent ended before {line!r}")


def create_in_background(lab: Containerd, pod: Pod, name: str):
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(lab.create_container, pod, name)
    pool.shutdown(wait=False)
    return future


def test_a_plugin_killed_in_its_handler_holds_up_nothing_and_the_next_copy_learns_of_the_container(lab, pod):
    """The synchronization may come before the container exists; then its start is what reports it."""
    with process(lab, "hang:pinned=1") as first:
        read_until(first, "connected")
        with agent(lab) as second:
            second.wait_report(f"is locked by process {first.pid}")
            created = create_in_background(lab, pod, "pinned")
            read_until(first, "ContainerCreating")
            first.send_signal(signal.SIGKILL)
            container = created.result(30)
            second.wait_report("Synchronized: answered")
            lab.start(container)
            second.wait(lambda: container in second.started())
            lab.update(container, shares=2048)  # any update, as the agent's repair, brings the CPUs with it
            assert_held(lab, container, "1")


def test_a_stopped_plugin_is_closed_by_the_runtime_and_connects_again(lab, pod):
    with process(lab, "pinned=1") as plugin:
        read_until(plugin, "Synchronized: answered")
        plugin.send_signal(signal.SIGSTOP)
        container = lab.run_container(pod, "pinned", cpus="0-1")
        assert effective(lab, container) == "0-1"
        plugin.send_signal(signal.SIGCONT)
        read_until(plugin, "Synchronized: answered")
        until_held(lab, container, "1")


def test_a_handler_that_is_too_slow_leaves_the_container_in_the_shared_pool(lab, pod):
    with agent(lab) as pinning:
        pinning.wait_report("connected: containerd")
        pinning.hang = {"pinned"}
        start = time.monotonic()
        container = lab.create_container(pod, "pinned", cpus="0-1")
        assert time.monotonic() - start >= 0.5
        lab.start(container)
        assert effective(lab, container) == "0-1"
        pinning.wait_report("ContainerCreating: overrun")
        pinning.hang = set()
        assert_held(lab, lab.run_container(pod, "pinned", attempt=1), "1")
        assert not [report for report in pinning.reports if report.startswith("lost")]


def test_two_plugins_that_pin_the_same_container_fail_its_creation(lab, pod, tmp_path):
    """Why one copy acts at a time: these two have different locks."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nri.sock").symlink_to(lab.nri_socket)
    first, second = (
        PinningAgent(tmp_path / name, tmp_path / name / "nri.sock", {"pinned": "1"}) for name in "ab"
    )
    with first, second:
        first.wait_report("connected: containerd")
        second.wait_report("connected: containerd")
        with pytest.raises(GRPCError, match="both tried to set"):
            lab.create_container(pod, "pinned")


class Shrinking(PinningAgent):
    """At each creation writes a shared container's cgroup, while containerd holds an older update of it."""

    def __init__(self, lab: Containerd, shared: str) -> None:
        super().__init__(lab.home, lab.nri_socket, {"pinned": "1"})
        self.lab, self.shared, self.older = lab, shared, None

    async def on_synchronized(self, event: Synchronized) -> tuple:
        self.runtime = CRIRuntime(container_paths.view(), self.lab.endpoint)
        await self.runtime.containers()
        return await super().on_synchronized(event)

    async def on_creating(self, event: ContainerCreating) -> Answer:
        self.older = asyncio.create_task(self.runtime.update(self.shared, pinned("0-1")))
        await asyncio.sleep(0.05)
        assert not self.older.done(), "containerd takes updates while it waits for a handler"
        self.cpus["shared"], smaller = "0", pinned("0")
        await self.runtime.write_cgroup(self.shared, smaller, recorded=True)
        observed = await self.runtime.observe(self.shared)
        assert str(observed.cpus) == "0"
        self.shrink = {self.shared: "0"}
        return await super().on_creating(event)

    async def _serve(self) -> None:
        await super()._serve()
        await self.older
        await self.runtime.close()


def test_a_handler_shrinks_a_container_while_an_older_update_of_it_is_under_way(lab, pod):
    shared = lab.run_container(pod, "shared", cpus="0-1")
    with Shrinking(lab, shared) as pinning:
        pinning.wait_report("Synchronized: answered")
        new = lab.run_container(pod, "pinned")
        pinning.wait_report("ContainerCreating: answered")
        pinning.wait_report("ContainerUpdating: answered")
        assert_held(lab, new, "1")
    assert_held(lab, shared, "0")
