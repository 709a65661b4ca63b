"""An agent that does not see its node refuses to start: another PID namespace, other cgroups."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.kernel import container_paths
from corelane.kernel.container_paths import CgroupView, NotTheHost, check

CTR = "/kubepods/burstable/podu/0123"
NOWHERE = Path("/nowhere/containerd.sock")


def proc(tmp_path, cgroup, *mounts):
    """A /proc with process 1 in these groups, and this process with these mounts."""
    for process, name, lines in (("1", "cgroup", cgroup), ("self", "mountinfo", mounts)):
        (tmp_path / process).mkdir()
        (tmp_path / process / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def mount(root, point, kind="cgroup"):
    return f"31 23 0:28 {root} {point} rw,relatime shared:9 - {kind} {kind} rw"


V1 = CgroupView(1, Path("/h/cpuset"), Path("/h/cpu,cpuacct"))
V2 = CgroupView(2, Path("/h"), Path("/h"))
V1_INIT = ("3:cpuset:/", "2:cpu,cpuacct:/init.scope", "0::/init.scope")


def v1(root, more=()):
    return (mount(root, "/h/cpuset"), mount(root, "/h/cpu,cpuacct"), *more)


@pytest.mark.parametrize(
    ("view", "cgroup", "mounts"),
    [
        pytest.param(V1, V1_INIT, v1("/"), id="v1, the host's"),
        pytest.param(V2, ("0::/init.scope",), (mount("/", "/h", "cgroup2"),), id="v2, the host's"),
        pytest.param(
            V2, ("0::/../../../../init.scope",), (mount("/../../../..", "/h", "cgroup2"),), id="private"
        ),
        pytest.param(
            V2, ("0::/../../init.scope",), (mount("/../..", "/h", "cgroup2"),), id="kind"
        ),
        pytest.param(V1, V1_INIT, v1("/", [mount(CTR, "/sys/fs/cgroup/cpuset")]), id="both mounted"),
        pytest.param(V1, (*V1_INIT[:1], *V1_INIT[2:]), v1("/"), id="hybrid without cpu"),
        pytest.param(V2, ("0::/",), (), id="no mount, as in a test"),
    ],
)  # fmt: skip
def test_the_nodes_cgroups_are_accepted(tmp_path, view, cgroup, mounts):
    check(view, NOWHERE, proc(tmp_path, cgroup, *mounts))


@pytest.mark.parametrize(
    ("view", "cgroup", "mounts", "group"),
    [
        pytest.param(V1, V1_INIT, v1(CTR), CTR, id="v1, the container's"),
        pytest.param(V1, ("3:cpuset:/", "2:cpu,cpuacct:/"), v1(CTR), CTR, id="v1, runtime in the root"),
        pytest.param(
            V2, ("0::/../../../init.scope",), (mount("/", "/h", "cgroup2"),), "/", id="v2, private namespace"
        ),
        pytest.param(V2, ("0::/init.scope",), (mount(CTR, "/h", "cgroup2"),), CTR, id="v2, host namespace"),
        pytest.param(
            V2,
            ("0::/../../../../init.scope",),
            (mount("/../..", "/h", "cgroup2"),),
            "/../..",
            id="kubepods only",
        ),
        pytest.param(
            V2,
            ("0::/../../init.scope",),
            (mount("/../../system.slice", "/h", "cgroup2"),),
            "/../../system.slice",
            id="a sibling",
        ),
        pytest.param(
            V1, V1_INIT, (mount("/", "/h/cpuset"), mount(CTR, "/h/cpu,cpuacct")), CTR, id="one of two"
        ),
        pytest.param(
            V2,
            ("0::/init.scope",),
            (mount("/", "/h", "cgroup2"), mount(CTR, "/h", "cgroup2")),
            CTR,
            id="mounted over",
        ),
    ],
)  # fmt: skip
def test_a_containers_own_group_is_not_taken_for_the_nodes_root(tmp_path, view, cgroup, mounts, group):
    with pytest.raises(NotTheHost, match="hostPath at /host/sys/fs/cgroup") as raised:
        check(view, NOWHERE, proc(tmp_path, cgroup, *mounts))
    assert f"is the group {group}, which" in str(raised.value)


@contextmanager
def listening(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def test_the_process_behind_the_socket_stands_for_the_node(tmp_path):
    path = tmp_path / "s"
    with listening(path):
        assert container_paths._listening_process(path) == os.getpid()
    assert container_paths._listening_process(path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a PID namespace")
def test_without_the_nodes_pid_namespace_the_field_to_set_is_named(tmp_path):
    path = tmp_path / "s"
    code = (
        "import sys; from pathlib import Path; from corelane.kernel import container_paths\n"
        "view = container_paths.CgroupView(2, Path('/h'), Path('/h'))\n"
        "try: container_paths.check(view, Path(sys.argv[1]))\n"
        "except container_paths.NotTheHost as error: print(error)"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    with listening(path):
        beside = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
    alone = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
    for done in (beside, alone):
        assert "another PID namespace" in done.stdout
        assert "set hostPID: true in the pod template" in done.stdout
    assert str(path) in beside.stdout
