"""Names that a local user can give to a cgroup or a mount: bytes that are not UTF-8, separators of lines."""

from pathlib import Path

import pytest

from corelane.kernel import cgroup, container_paths
from corelane.kernel.container_paths import group_of_process

ODD = [b"/\xff\xfe", b"/a\x0bb", b"/a\x1cb", b"/a\rb", "/a\u2028b\x85".encode(), b"/a:b", b"/ - cgroup x"]


@pytest.mark.parametrize("name", ODD, ids=repr)
def test_an_odd_name_of_a_mount_hides_no_other_mount(tmp_path: Path, name: bytes) -> None:
    own = tmp_path / "proc/self"
    own.mkdir(parents=True)
    (own / "cgroup").write_bytes(b"3:cpuset:" + name + b"\n1:cpu:/own\n")
    escaped = name.replace(b" ", rb"\040")
    ours = b"30 20 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    (own / "mountinfo").write_bytes(b"30 20 0:50 / " + escaped + b" rw - fuse.x x rw\n" + ours)
    (mount,) = cgroup.mounts(tmp_path)
    assert str(mount.directory) == f"{tmp_path}/sys/fs/cgroup/cpu"
    (tmp_path / "sys/fs/cgroup/cpu").mkdir(parents=True)
    assert container_paths._groups(own)["cpu"] == "/own"
    assert container_paths._mounted_group(Path("/sys/fs/cgroup/cpu"), tmp_path / "proc") == "/"


@pytest.mark.parametrize("name", ODD, ids=repr)
def test_an_odd_name_of_a_cgroup_is_a_group_of_its_own(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_bytes(b"1:cpu:/x\n0::" + name + b"\n3:cpuset:" + name + b"\n")

    class View:
        version = 1

    assert group_of_process(View(), 7, tmp_path) == name.decode(errors="replace").lstrip("/")
