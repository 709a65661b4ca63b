"""A real containerd with pinned containers: read through CRI, and a broken state file rebuilt from it."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.runtime.cri import client as cri
from corelane.runtime.cri import values
from support import containerd

pytestmark = pytest.mark.system

UID, SHARING, STATIC = (f"{n}1111111-2222-4333-8444-555555555555" for n in (1, 2, 3))


@pytest.fixture(scope="module", params=containerd.DIRECTORIES)
def lab(request, tmp_path_factory):
    # A socket's path must be short.
    with containerd.running(tmp_path_factory.mktemp("cd"), request.param) as found:
        yield found


@pytest.fixture
def two_cpus():
    """A CPU to own, and what is left of the machine."""
    online = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
    if len(online) < 2 or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    own = max(online)
    return online, CPUSet([own]), online - CPUSet([own])


def test_a_broken_state_file_is_rebuilt_from_cgroups_and_the_runtimes_names(lab, two_cpus, tmp_path):
    online, own, pool = two_cpus
    owner, sharer = lab.run_pod("owner", UID), lab.run_pod("sharer", SHARING)
    pinned = lab.run_container(owner, "app", shares=1024, cpus=str(own))
    lab.run_container(owner, "sidecar", shares=512, cpus=str(pool))
    lab.run_container(sharer, "share", shares=1536, cpus=str(pool))
    file = tmp_path / "cpu_manager_state"
    broken = b'{"policyName":"static","defaultCpuSet":"0'
    file.write_bytes(broken)

    result = _repair(file, lab, tmp_path, min(online))
    assert result.exit_code == 0, result.output
    found = checkpoint.decode(file.read_bytes())
    assert (found.policy, found.default, found.entries) == ("static", pool, {UID: {"app": own}})
    assert "default/owner" in result.output
    (backup,) = tmp_path.glob("*.bak-*")
    assert backup.read_bytes() == broken
    again = CliRunner().invoke(main, ["state", "verify", str(file), "--reserved-cpus", str(min(online))])
    assert again.exit_code == 0, again.output

    lab.stop(pinned)
    _gone(lab, pinned)
    file.write_bytes(broken)
    result = _repair(file, lab, tmp_path, min(online))
    assert result.exit_code == 0, result.output
    assert checkpoint.decode(file.read_bytes()).entries == {}


def _repair(file, lab, tmp_path, reserved):
    """Seen through a root in which only this test's cgroups are."""
    root = tmp_path / "root"
    view, real = root / "sys/fs/cgroup", Path("/sys/fs/cgroup")
    if not root.exists():
        if (real / "cgroup.controllers").exists():
            view.parent.mkdir(parents=True)
            view.symlink_to(real / lab.parent)
        else:
            view.mkdir(parents=True)
            (view / "cpuset").symlink_to(real / "cpuset" / lab.parent)
    args = ["state", "repair", file, "--root", root, f"--cri={lab.endpoint}", "--policy", "static"]
    args += ["--reserved-cpus", reserved, "--yes"]
    return CliRunner(env={"COLUMNS": "300"}).invoke(main, [str(arg) for arg in args])


def _gone(lab, container):
    deadline = time.monotonic() + 20
    while _state(lab, container) == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _state(lab, container):
    async def request():
        async with cri.connect(lab.endpoint) as client:
            return next(one.state for one in await client.containers() if one.id == container)

    return asyncio.run(request())


def test_everything_that_the_kubelet_would_say_of_a_pod_is_read(lab):
    pod = lab.run_pod("kube-proxy-node", STATIC)
    container = lab.run_container(pod, "kube-proxy", shares=2)

    async def request():
        async with cri.connect(lab.endpoint) as client:
            runtime, pods = await client.version(), await client.sandboxes()
            found = await client.containers()
            return runtime, pods, found, await client.resources(container), await client.resources("none")

    runtime, pods, containers, resources, missing = asyncio.run(request())
    assert runtime.name == "containerd"
    (sandbox,) = [one for one in pods if one.uid == STATIC]
    assert (sandbox.namespace, sandbox.name, sandbox.ready) == ("default", "kube-proxy-node", True)
    (one,) = [one for one in containers if one.id == container]
    assert (one.sandbox, one.name, one.state) == (sandbox.id, "kube-proxy", "running")
    assert one.labels[values.POD_UID] == STATIC
    assert resources is not None
    assert (resources.shares, resources.period) == (2, 100_000)
    assert missing is None
