"""Two `corelane up` on one machine: the second sees the containers of the first, and keeps off their CPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from support.up import FOREVER, Up, clear, container, pod
from support.up_pods import ready

OWN = pod("lane", container("server", FOREVER, "1"))

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing can be exclusive")


@pytest.fixture
def listed_first() -> Iterator[Path]:
    """A directory whose containers are named before those of other tests and users: five are named."""
    path = Path(tempfile.mkdtemp(prefix="-corelane-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@needs_two
@pytest.mark.parametrize(("mode", "first"), [("auto", "deleted"), ("off", "running")])
def test_cpus_of_another_instance_are_not_promised_again(
    listed_first: Path, tmp_path: Path, mode: str, first: str
) -> None:
    a, b = listed_first / "a", tmp_path / "b"
    usable = len(os.sched_getaffinity(0))
    ours = [pod(f"lane-{n}", container("server", FOREVER, "1")) for n in range(usable)]
    one = Up(a, "--node-name", "here", "--cgroups", mode)
    try:
        one.call(lambda client: client.create(OWN))
        ready(one, "lane")
        if first == "deleted":
            one.kill()
            shutil.rmtree(a)
        two = Up(b, "--node-name", "here", "--cgroups", mode, "--other-instances", "block")
        try:
            assert f"default/lane/server of {a}" in two.output
            two.call(lambda client: _create(client, ours))
            two.until(
                lambda client: _pending(client, 2), "one CPU is reserved, and one is of the other instance"
            )
            shown = subprocess.run(
                [sys.executable, "-m", "corelane", "status", "--kubeconfig", str(two.kubeconfig)],
                capture_output=True,
                text=True,
                timeout=180,
                check=True,
            )
            assert "other instances (" in " ".join(shown.stdout.split())
        finally:
            two.kill()
            clear(b)
    finally:
        one.kill()
        command = [sys.executable, "-m", "corelane", "down", "--data-dir", str(a), "--grace-seconds", "0"]
        subprocess.run(command, capture_output=True, timeout=180, check=True)


async def _create(client: KubeClient, manifests: list[dict[str, object]]) -> None:
    for manifest in manifests:
        await client.create(manifest)


async def _pending(client: KubeClient, least: int) -> bool:
    """Whether at least so many pods were refused by the scheduler."""
    pods = (await client.list(Pod)).items
    refused = [p for p in pods if any(c.reason == "Unschedulable" for c in p.status.conditions)]
    return len(refused) >= least
