"""A test's containerd leaves nothing behind, not even one that was killed with its pods running."""

from pathlib import Path

import pytest

from corelane.kernel import proc
from support import containerd

pytestmark = pytest.mark.system

UID = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize("release", containerd.DIRECTORIES)
def test_a_killed_containerd_leaves_no_process_cgroup_mount_or_socket(release, tmp_path):
    with containerd.running(tmp_path, release) as lab:
        pod = lab.run_pod("web", UID)
        process = proc.identity(lab.pid(lab.run_container(pod, "app", shares=1024)))
        sockets = set(Path("/run/containerd/s").iterdir())
        lab.kill_daemon()
    assert not proc.is_alive(process)
    assert not list(containerd.GROUPS.glob(f"**/{lab.parent}"))
    assert f" {tmp_path}/" not in Path("/proc/mounts").read_text()
    assert not any(path.exists() for path in sockets if str(path) in lab.log())
