"""A container's cgroup in version 2, on a directory with the kernel's rules; errors of both versions."""

import errno
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup
from corelane.kernel.cgroupfs import KERNEL, CgroupError, CgroupGone
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView
from support.cgroup2_fake import FakeV2

POD, GROUP = "kubepods/pod1", "kubepods/pod1/c1"


@pytest.fixture
def fake(tmp_path):
    fake = FakeV2(tmp_path / "cgroup")
    for group in ("", "kubepods", POD):
        if group:
            fake.mkdir(fake.root / group)
        fake.write(fake.root / group / "cgroup.subtree_control", "+cpuset +cpu")
    fake.mkdir(fake.root / GROUP)
    fake.written.clear()
    return fake


@pytest.fixture
def view(fake):
    return CgroupView(2, fake.root, fake.root, fake)


def cpus(text):
    return CPUSet.parse(text)


def test_a_new_container_has_what_the_group_above_has_and_no_limit(view):
    group = container_cgroup.read(view, GROUP)
    assert (group.cpus, group.cpus_requested, group.mems) == (cpus("0-7"), CPUSet(), cpus("0"))
    assert (group.quota_us, group.period_us, group.burst_us) == (None, 100_000, 0)
    assert not group.populated


def test_a_set_is_read_back_as_set_and_in_effect(fake, view):
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("2-3"), mems=cpus("0"))
    group = container_cgroup.read(view, GROUP)
    assert (group.cpus, group.cpus_requested) == (cpus("2-3"), cpus("2-3"))
    assert [path for path, _ in fake.written] == [f"{GROUP}/cpuset.mems", f"{GROUP}/cpuset.cpus"]


def test_what_is_set_already_is_not_written(fake, view):
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("2-3"))
    container_cgroup.write_bandwidth(view, GROUP, Bandwidth(50_000))
    fake.written.clear()
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("2-3"))
    container_cgroup.write_bandwidth(view, GROUP, Bandwidth(50_000))
    assert fake.written == []


def test_effective_cpus_show_what_a_group_above_took_away(fake, view):
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("2-3"))
    (fake.root / POD / "cpuset.cpus").write_text("3-4")
    group = container_cgroup.read(view, GROUP)
    assert (group.cpus, group.cpus_requested) == (cpus("3"), cpus("2-3"))


def test_kubelet_groups_grow_from_the_top_when_a_container_needs_more_and_never_shrink(fake, view):
    (fake.root / "kubepods/cpuset.cpus").write_text("0-3")
    (fake.root / POD / "cpuset.cpus").write_text("0-1")
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("3-4"))
    assert fake.written == [
        ("kubepods/cpuset.cpus", "0-4"),
        (f"{POD}/cpuset.cpus", "0-1,3-4"),
        (f"{GROUP}/cpuset.cpus", "3-4"),
    ]
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("3"))
    assert fake.written[3:] == [(f"{GROUP}/cpuset.cpus", "3")]


def test_groups_above_that_have_no_set_of_their_own_are_left_alone(fake, view):
    container_cgroup.write_cpuset(view, GROUP, cpus=cpus("5"))
    assert fake.written == [(f"{GROUP}/cpuset.cpus", "5")]


def test_populated_until_the_last_process_below_has_ended(fake, view):
    fake.mkdir(fake.root / GROUP / "nested")
    procs = fake.root / GROUP / "nested/cgroup.procs"
    procs.write_text("4711")
    assert container_cgroup.read(view, GROUP).populated
    procs.write_text("")
    assert not container_cgroup.read(view, GROUP).populated


BANDWIDTHS = st.builds(
    Bandwidth,
    st.none() | st.integers(1000, 500_000),
    st.integers(1000, 1_000_000),
).flatmap(
    lambda limit: st.integers(0, limit.quota_us if limit.quota_us is not None else 100_000).map(
        lambda burst: Bandwidth(limit.quota_us, limit.period_us, burst)
    )
)


@given(st.lists(BANDWIDTHS, min_size=1, max_size=6))
def test_any_bandwidth_follows_any_other(tmp_path_factory, steps):
    fake = FakeV2(tmp_path_factory.mktemp("v2") / "cgroup")
    fake.write(fake.root / "cgroup.subtree_control", "+cpuset +cpu")
    fake.mkdir(fake.root / "c")
    view = CgroupView(2, fake.root, fake.root, fake)
    for step in steps:
        container_cgroup.write_bandwidth(view, "c", step)
        assert container_cgroup.read_bandwidth(view, "c") == step
    shutil.rmtree(fake.root)


def test_a_kernel_without_burst_has_none_and_refuses_one_by_name(fake, view):
    (fake.root / GROUP / "cpu.max.burst").unlink()
    assert container_cgroup.read(view, GROUP).burst_us == 0
    with pytest.raises(CgroupError, match=r"cpu\.max\.burst: ENOENT: this kernel has no CFS burst"):
        container_cgroup.write_bandwidth(view, GROUP, Bandwidth(None, burst_us=1000))


def test_without_the_cpuset_controller_the_group_aboves_cpus_are_in_effect(fake, view):
    for path in (fake.root / GROUP).glob("cpuset.*"):
        path.unlink()
    (fake.root / POD / "cpuset.cpus").write_text("0-1")
    assert container_cgroup.read(view, GROUP).cpus == cpus("0-1")
    with pytest.raises(CgroupError, match="ENOENT") as caught:
        container_cgroup.write_cpuset(view, GROUP, cpus=cpus("1"))
    assert not isinstance(caught.value, CgroupGone)


@pytest.mark.parametrize(
    "use",
    [
        container_cgroup.read,
        lambda view, group: container_cgroup.write_cpuset(view, group, cpus=CPUSet([1])),
        lambda view, group: container_cgroup.write_bandwidth(view, group, Bandwidth(50_000)),
    ],
)
def test_a_container_that_has_ended_is_gone(fake, view, use):
    shutil.rmtree(fake.root / GROUP)
    with pytest.raises(CgroupGone, match="ENOENT: no such group; the container has ended"):
        use(view, GROUP)
    assert not container_cgroup.populated(view, GROUP)


class Ending(FakeV2):
    """A container that ends in the middle of a write: open files answer ENODEV, and the directory goes."""

    def write(self, path, text):
        shutil.rmtree(path.parent)
        self._refuse(f"write {text!r} to", path, errno.ENODEV)


def test_a_container_that_ends_during_a_write_is_gone(tmp_path):
    fake = Ending(tmp_path / "cgroup")
    fake.mkdir(fake.root / "c")
    (fake.root / "c/cpuset.cpus").write_text("")
    with pytest.raises(CgroupGone):
        container_cgroup.write_cpuset(CgroupView(2, fake.root, fake.root, fake), "c", cpus=cpus("1"))


class Refusing(FakeV2):
    number = 0

    def write(self, path, text):
        self._refuse(f"write {text!r} to", path, self.number)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EINVAL, "EINVAL: some of these CPUs do not exist, are offline"),
        (errno.EBUSY, "EBUSY: a group below still uses CPUs"),
        (errno.ENOSPC, "ENOSPC: the group has processes and would be left without a CPU"),
        (errno.EROFS, "EROFS: the cgroup file system is mounted read-only; mount it read-write"),
        (errno.EACCES, "EACCES: the group above does not have all of these CPUs"),
    ],
)
def test_each_error_of_the_kernel_has_its_meaning(tmp_path, number, text):
    fake = Refusing(tmp_path / "cgroup")
    fake.number = number
    fake.mkdir(fake.root / "c")
    (fake.root / "c/cpuset.cpus").write_text("")
    with pytest.raises(CgroupError, match=text) as caught:
        container_cgroup.write_cpuset(CgroupView(2, fake.root, fake.root, fake), "c", cpus=cpus("1"))
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == number


def test_a_process_without_descriptors_left_is_an_error_that_says_so(tmp_path, monkeypatch):
    def fail(*_args):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    (tmp_path / "c").mkdir()
    monkeypatch.setattr("corelane.kernel.cgroupfs.os.open", fail)
    with pytest.raises(CgroupError, match=r"EMFILE: .* raise its limit") as caught:
        container_cgroup.read(CgroupView(2, tmp_path, tmp_path, KERNEL), "c")
    assert not isinstance(caught.value, CgroupGone)


def test_an_empty_set_is_never_written(fake, view):
    with pytest.raises(ValueError, match="cannot become empty"):
        container_cgroup.write_cpuset(view, GROUP, cpus=CPUSet())
    assert fake.written == []
