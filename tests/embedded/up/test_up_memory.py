"""`corelane up` and pods that use more memory than their limit."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from corelane.kernel import proc
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event, Node
from corelane.kube.pod import ContainerStatus, Pod
from support.containers import limits_memory
from support.up import PATIENCE, Up, pod, up
from support.up_pods import pids, ready

needs_memory = pytest.mark.skipif(not limits_memory(), reason="needs memory cgroups that can be written")

EAT = "held = [bytearray(b'x') * (1 << 20) for _ in range(96)]"
WAIT = "import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.02)\n"
SLEEP = "\nimport time; time.sleep(600)"


def python(name: str, script: str, **limits: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-c", script]
    return {"name": name, "image": "ignored", "command": command, "resources": {"limits": limits}}


async def create(client: KubeClient, manifest: dict[str, Any]) -> None:
    await client.create(manifest)


async def container_status(client: KubeClient, name: str) -> ContainerStatus | None:
    statuses = (await client.get(Pod, name, namespace="default")).status.container_statuses
    return statuses[0] if statuses else None


async def events(client: KubeClient, reason: str) -> list[Event]:
    return [event for event in (await client.list(Event)).items if event.reason == reason]


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (process := proc.identity(pid)) and proc.is_alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def crashes(cluster: Up, name: str) -> ContainerStatus:
    """The status once the container waits for its next start."""

    async def backs_off(client: KubeClient) -> ContainerStatus | None:
        found = await container_status(client, name)
        waiting = found.state.waiting if found else None
        return found if waiting and waiting.reason == "CrashLoopBackOff" else None

    found = cluster.until(backs_off, f"{name} backs off")
    assert found is not None
    return found


@needs_memory
def test_a_pod_beyond_its_limit_is_out_of_memory_and_backs_off(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--node-name", "here") as cluster:
        cluster.call(lambda client: create(client, pod("eater", python("c", EAT, memory="32Mi"))))
        found = crashes(cluster, "eater")
        terminated = found.last_state.terminated
        assert terminated is not None
        assert (terminated.reason, terminated.exit_code, terminated.signal) == ("OOMKilled", 137, 9)
        assert found.restart_count >= 1
        told = cluster.until(lambda client: events(client, "OOMKilled"))
        expected = "Container c was out of memory at its memory limit of 32Mi: the kernel killed a process"
        assert told[0].message.startswith(expected)
        assert told[0].type == "Warning"
        cluster.until(lambda client: events(client, "BackOff"))


@needs_memory
def test_the_reason_survives_corelane_being_killed_before_the_end(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = WAIT.format(go=str(go)) + EAT
    data = tmp_path / "data"
    with up(data, "--node-name", "here") as cluster:
        never = {"restartPolicy": "Never"}
        cluster.call(lambda client: create(client, pod("eater", python("c", script, memory="32Mi"), **never)))
        ready(cluster, "eater")
        pid = pids(data)["eater/c"]
        cluster.process.send_signal(signal.SIGKILL)
        cluster.process.wait()
        go.touch()
        wait_until_gone(pid)
        with up(data, "--node-name", "here") as again:

            async def failed(client: KubeClient) -> bool:
                return (await client.get(Pod, "eater", namespace="default")).status.phase == "Failed"

            again.until(failed, "the pod failed")
            found = again.call(lambda client: container_status(client, "eater"))
            assert found is not None
            assert found.state.terminated is not None
            assert (found.state.terminated.reason, found.state.terminated.exit_code) == ("OOMKilled", 137)


def test_without_cgroups_limits_are_not_enforced_and_that_is_said_once(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--node-name", "here", "--cgroups", "off") as cluster:
        for name in ("one", "two"):
            manifest = pod(name, python("c", EAT + SLEEP, memory="32Mi"))
            cluster.call(lambda client, manifest=manifest: create(client, manifest))
        ready(cluster, "one", "two")
        (told,) = cluster.until(lambda client: events(client, "MemoryLimitsIgnored"))
        assert "corelane.io/notice" in told.message
        node = cluster.call(lambda client: client.get(Node, "here"))
        assert "memory limits" in node.metadata.annotations["corelane.io/notice"]
        assert "memory limits" in cluster.output
