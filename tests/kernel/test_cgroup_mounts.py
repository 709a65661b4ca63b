"""Finding cgroups from what /proc/self says; the texts are those of real machines."""

import errno

import pytest

from corelane.kernel import cgroup, cgroup_tree
from corelane.kernel.cgroup import Mount, mounts
from support.cgroup2_fake import FakeV2

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
HYBRID_OWN = "9:name=systemd:/user.slice\n3:cpuset:/\n1:cpu,cpuacct:/user.slice/a b\n0::/user.slice\n"
PURE = (
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
)
OWN = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/corelane.service\n"


@pytest.fixture
def machine(tmp_path):
    def make(mountinfo, own):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/mountinfo").write_text(mountinfo)
        (tmp_path / "proc/self/cgroup").write_text(own)
        return tmp_path

    return make


def test_a_hybrid_machine_shows_its_controllers_and_where_we_are(machine):
    root = machine(HYBRID, HYBRID_OWN)
    cgroups = root / "sys/fs/cgroup"
    assert mounts(root) == [
        Mount(
            1, frozenset({"cpu", "cpuacct"}), cgroups / "cpu,cpuacct", cgroups / "cpu,cpuacct/user.slice/a b"
        ),
        Mount(1, frozenset({"cpuset"}), cgroups / "cpuset", cgroups / "cpuset"),
        Mount(1, frozenset({"name=systemd"}), cgroups / "systemd", cgroups / "systemd/user.slice"),
        Mount(2, frozenset(), cgroups / "unified", cgroups / "unified/user.slice"),
    ]


def test_a_mount_that_shows_only_a_part_is_taken_as_the_whole(machine):
    """In a container without a cgroup namespace, the mount's root is the container's own group."""
    line = "34 31 0:31 /docker/ab /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    root = machine(line, "3:cpuset:/docker/ab/inner\n")
    assert mounts(root)[0].own == root / "sys/fs/cgroup/cpuset/inner"


def test_a_group_outside_of_what_the_mount_shows_is_taken_for_its_top(machine):
    line = "34 31 0:31 /docker/ab /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    root = machine(line, "3:cpuset:/docker/abc\n")
    assert mounts(root)[0].own == root / "sys/fs/cgroup/cpuset"


def test_a_mount_point_with_escaped_characters_is_found(machine):
    line = r"30 23 0:26 / /mnt/my\040groups rw - cgroup2 none rw" + "\n"
    root = machine(line, "0::/\n")
    assert mounts(root)[0].directory == root / "mnt/my groups"


def test_version_2_is_found_with_our_root_made_and_controllers_enabled(machine):
    root = machine(PURE, "0::/\n")
    fake = FakeV2(root / "sys/fs/cgroup")
    groups = cgroup.find(root, fake)
    assert groups.version == 2
    assert groups.exists("corelane")
    assert fake.read(fake.root / "cgroup.subtree_control") == "cpuset cpu memory"
    assert groups.lacks == ""


def test_version_2_without_a_memory_controller_serves_and_says_what_it_lacks(machine):
    root = machine(PURE, "0::/\n")
    fake = FakeV2(root / "sys/fs/cgroup", controllers="cpuset cpu")
    groups = cgroup.find(root, fake)
    assert fake.read(fake.root / "cgroup.subtree_control") == "cpuset cpu"
    assert groups.lacks == f"cgroup v2 {fake.root}: no controller memory there"
    assert not cgroup_tree.is_limited(groups)


def test_version_1_without_a_memory_hierarchy_that_may_be_written_serves_all_the_same(machine, monkeypatch):
    memory = "42 31 0:39 / /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n"
    root = machine(HYBRID + memory, HYBRID_OWN + "4:memory:/\n")
    cgroups = root / "sys/fs/cgroup"
    monkeypatch.setattr(cgroup, "_writable", lambda path: "memory" not in path.parts)
    monkeypatch.setattr(cgroup.Groups1, "create", lambda self, group: None)
    groups = cgroup.find(root)
    assert groups.lacks == f"cgroup v1 memory: {cgroups}/memory may not be written"
    assert "memory" not in groups.bases


def test_version_1_goes_without_memory_where_no_group_can_be_made_there(machine, monkeypatch):
    memory = "42 31 0:39 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    root = machine(HYBRID + memory, HYBRID_OWN + "4:memory:/\n")
    monkeypatch.setattr(cgroup, "_writable", lambda path: True)

    def create(groups, group):
        if "memory" in groups.bases:
            raise cgroup.CgroupError("create", groups.bases["memory"] / group, OSError(errno.EACCES, ""))

    monkeypatch.setattr(cgroup.Groups1, "create", create)
    groups = cgroup.find(root)
    assert set(groups.bases) == {"cpuset", "cpu", "cpuacct"}
    assert groups.lacks == f"cgroup v1 memory: no group can be made in {root}/sys/fs/cgroup/memory"


def test_a_delegated_part_of_the_tree_is_used_where_the_top_may_not_be_written(machine, monkeypatch):
    root = machine(PURE, OWN)
    fake = FakeV2(root / "sys/fs/cgroup")
    delegated = fake.root / "user.slice/user-1000.slice/user@1000.service"
    path = fake.root
    for name in delegated.relative_to(fake.root).parts:
        fake.write(path / "cgroup.subtree_control", "+cpuset +cpu")
        path /= name
        fake.mkdir(path)
    monkeypatch.setattr(cgroup, "_writable", lambda path: path.is_relative_to(delegated))
    groups = cgroup.find(root, fake)
    assert groups.directories("corelane") == (delegated / "corelane",)


def test_a_group_that_holds_processes_is_no_place_for_groups_with_controllers(machine, monkeypatch):
    root = machine(PURE, "0::/own\n")
    fake = FakeV2(root / "sys/fs/cgroup")
    fake.write(fake.root / "cgroup.subtree_control", "+cpuset +cpu")
    fake.mkdir(fake.root / "own")
    fake.write(fake.root / "own/cgroup.procs", "1")
    monkeypatch.setattr(cgroup, "_writable", lambda path: path.is_relative_to(fake.root / "own"))
    with pytest.raises(cgroup.CgroupsUnavailable, match=r"EBUSY: processes live in this group.*Delegate=yes"):
        cgroup.find(root, fake)


def test_every_reason_is_told_when_nothing_can_be_used(machine):
    root = machine(HYBRID, HYBRID_OWN)
    with pytest.raises(cgroup.CgroupsUnavailable) as caught:
        cgroup.find(root)
    message = str(caught.value)
    assert "cgroup v1 cpuset: " in message
    assert "cgroup v1 cpu: " in message
    assert "unified: no controller cpuset and cpu there" in message


def test_a_machine_without_cgroups_says_so(machine):
    with pytest.raises(cgroup.CgroupsUnavailable, match="no cgroup file system is mounted"):
        cgroup.find(machine("", ""))
