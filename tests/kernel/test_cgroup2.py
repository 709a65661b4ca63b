"""Version 2 against a directory with the kernel's rules."""

import subprocess

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import cgroup
from corelane.kernel.cgroup import Groups2
from corelane.kernel.cgroup_tree import GroupSettings
from support.cgroup2_fake import FakeV2

POD, CONTAINER = "corelane/i/pod", "corelane/i/pod/main"


@pytest.fixture
def fake(tmp_path):
    return FakeV2(tmp_path / "cgroup")


@pytest.fixture
def groups(fake):
    made = Groups2({"cpuset": fake.root, "cpu": fake.root}, fake)
    made.create(CONTAINER)
    return made


def test_controllers_are_enabled_all_the_way_down_but_not_in_the_leaf(fake, groups):
    controls = {path.parent.name: path.read_text() for path in fake.root.rglob("cgroup.subtree_control")}
    assert controls == {
        "cgroup": "cpuset cpu",
        "corelane": "cpuset cpu",
        "i": "cpuset cpu",
        "pod": "cpuset cpu",
        "main": "",
    }


def test_what_is_enabled_already_is_not_written_again(fake, groups):
    fake.written.clear()
    groups.create("corelane/i/pod/second")
    assert fake.written == []


def test_only_what_is_missing_is_enabled_above_us(tmp_path):
    fake = FakeV2(tmp_path / "cgroup")
    fake.write(fake.root / "cgroup.subtree_control", "+memory +cpu")
    Groups2({"cpuset": fake.root, "cpu": fake.root}, fake).create("corelane")
    assert fake.read(fake.root / "cgroup.subtree_control") == "memory cpu cpuset"


def test_settings_are_read_back_as_they_were_set(groups):
    groups.set_cpus(CONTAINER, CPUSet([2, 3]))
    groups.set_request(CONTAINER, 1000, "container")
    groups.set_quota(CONTAINER, 250_000, 50_000)
    assert groups.read(CONTAINER) == GroupSettings(
        cpus=CPUSet([2, 3]), effective=CPUSet([2, 3]), mems=CPUSet([0]),
        shares=None, weight=100, quota_us=250_000, period_us=50_000,
    )  # fmt: skip


def test_a_pod_is_weighed_by_the_kubelets_formula_and_a_container_by_the_runtimes(fake, groups):
    groups.set_request(POD, 1000, "pod")
    groups.set_request(CONTAINER, 1000, "container")
    assert (groups.read(POD).weight, groups.read(CONTAINER).weight) == (39, 100)


def test_a_limit_can_be_taken_away(fake, groups):
    groups.set_quota(CONTAINER, 10_000)
    groups.set_quota(CONTAINER, None)
    assert fake.read(fake.root / CONTAINER / "cpu.max") == "max 100000"
    assert groups.read(CONTAINER).quota_us is None


def test_a_group_without_a_cpuset_has_that_of_the_one_above(groups):
    groups.set_cpus(POD, CPUSet([4, 5]))
    assert groups.read(CONTAINER).cpus == CPUSet()
    assert groups.read(CONTAINER).effective == CPUSet([4, 5])


def test_groups_above_grow_before_the_one_below_does(fake, groups):
    groups.set_cpus("corelane/i", CPUSet([0, 1]))
    groups.set_cpus(POD, CPUSet([1]))
    fake.written.clear()
    groups.set_cpus(CONTAINER, CPUSet([2, 3]))
    assert fake.written == [
        ("corelane/i/cpuset.cpus", "0-3"),
        ("corelane/i/pod/cpuset.cpus", "1-3"),
        ("corelane/i/pod/main/cpuset.cpus", "2-3"),
    ]


def test_cpus_are_taken_from_above_a_group_that_asks_for_them(fake, groups):
    """The kernel grants a group what it asks for and the one above has, or all of that."""
    groups.set_cpus(CONTAINER, CPUSet([2, 3]))
    groups.set_cpus(POD, CPUSet([3]))
    assert groups.read(POD).cpus == CPUSet([3])
    assert groups.read(CONTAINER).cpus == CPUSet([2, 3])


def test_processes_cannot_enter_a_group_that_hands_controllers_to_processes_below(groups):
    groups.add(CONTAINER, 12344)
    with pytest.raises(cgroup.CgroupError, match=r"cgroup\.procs: EBUSY: the group hands controllers"):
        groups.add(POD, 12345)


@pytest.fixture
def inner(fake):
    """A group below the hierarchy's root that has the controllers and holds a process, as in a container."""
    fake.write(fake.root / "cgroup.subtree_control", "+cpuset +cpu")
    group = fake.root / "box"
    fake.mkdir(group)
    fake.write(group / "cgroup.procs", "12345")
    return group


def test_a_group_with_processes_is_not_made_the_root_of_a_threaded_subtree(fake, inner):
    """The kernel would let it happen, and refuse every process in the groups below."""
    groups = Groups2({"cpuset": inner, "cpu": inner}, fake)
    with pytest.raises(cgroup.CgroupError, match=r"box/cgroup\.subtree_control: EBUSY: processes live in"):
        groups.create("corelane")
    assert fake.read(inner / "cgroup.type") == "domain"
    assert fake.groups(inner) == []


def test_no_group_is_left_where_none_can_hold_processes(fake, inner):
    fake.write(inner / "cgroup.subtree_control", "+cpuset +cpu")
    groups = Groups2({"cpuset": inner, "cpu": inner}, fake)
    with pytest.raises(cgroup.CgroupError, match=r"box/corelane: ENOTSUP: the group above is threaded"):
        groups.create("corelane")
    assert fake.groups(inner) == []


@pytest.mark.parametrize("by_the_kernel", [True, False])
def test_a_group_is_emptied_with_all_below(tmp_path, by_the_kernel):
    fake = FakeV2(tmp_path / "cgroup", kill=by_the_kernel)
    groups = Groups2({"cpuset": fake.root, "cpu": fake.root}, fake)
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    for name, sleeper in zip(("a", "b"), sleepers, strict=True):
        groups.create(f"{POD}/{name}")
        groups.add(f"{POD}/{name}", sleeper.pid)
    assert groups.pids(POD) == sorted(sleeper.pid for sleeper in sleepers)
    assert groups.kill(POD) == groups.pids(POD) or by_the_kernel
    assert [sleeper.wait(5) for sleeper in sleepers] == [-9, -9]


def test_deleting_takes_groups_below_along_and_nothing_beside(fake, groups):
    groups.create("corelane/other/pod")
    fake.mkdir(fake.root / "kubepods")
    groups.delete("corelane/i")
    assert groups.children("corelane") == ["other"]
    assert fake.groups(fake.root) == ["corelane", "kubepods"]
    groups.delete("corelane/i")  # gone already


@pytest.mark.parametrize(
    "group", ["kubepods", "", "..", "corelane/../kubepods", "corelane//x", "system.slice/corelane"]
)
def test_groups_that_are_not_ours_cannot_even_be_named(groups, group):
    for action in (groups.create, groups.delete, groups.pids, groups.kill):
        with pytest.raises(ValueError, match="not one of ours"):
            action(group)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "cgroup.procs", "cpu.max", "-x", "a b", "x" * 256, "é"]
)
def test_a_name_that_cannot_be_a_group_is_refused(name):
    with pytest.raises(ValueError, match="cannot name a cgroup"):
        cgroup.join("instance", name)


def test_a_cpuset_may_not_become_empty(groups):
    with pytest.raises(ValueError, match=r"main/cpuset\.cpus cannot become empty"):
        groups.set_cpus(CONTAINER, CPUSet())


def test_a_controller_that_does_not_reach_the_group_is_named(tmp_path):
    fake = FakeV2(tmp_path / "cgroup", controllers="cpu")
    groups = Groups2({"cpuset": fake.root, "cpu": fake.root}, fake)
    with pytest.raises(
        cgroup.CgroupError, match=r"subtree_control: ENOENT: the controller is not handed down"
    ):
        groups.create("corelane")


def test_a_group_removed_meanwhile_by_another_instance_is_made_again(fake, groups):
    groups.delete("corelane")
    original, calls = fake.mkdir, []

    def mkdir(path):
        calls.append(path)
        if len(calls) == 2:
            fake.rmdir(fake.root / "corelane")
        return original(path)

    fake.mkdir = mkdir
    groups.create("corelane/i")
    assert groups.exists("corelane/i")
