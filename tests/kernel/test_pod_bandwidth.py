"""The quota of a pod's cgroup, on a directory with the rules of cgroup v2: lifted where it is only a sum."""

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup
from corelane.kernel.container_cgroup import Bandwidth
from corelane.kernel.container_paths import CgroupView
from support.cgroup2_fake import FakeV2

POD = "kubepods/pod11111111-2222-4333-8444-555555555555"
SLICE = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1111_2222.slice"


@pytest.fixture
def fake(tmp_path):
    return FakeV2(tmp_path / "cgroup")


@pytest.fixture
def view(fake):
    return CgroupView(2, fake.root, fake.root, fake)


def make(fake, pod, **quotas):
    """A pod with a quota and a container of each name, quotas in microseconds or None."""
    names = pod.split("/")
    for depth in range(len(names) + 1):
        group = "/".join(names[:depth])
        if group:
            fake.mkdir(fake.root / group)
        fake.write(fake.root / group / "cgroup.subtree_control", "+cpuset +cpu")
    view = CgroupView(2, fake.root, fake.root, fake)
    limit = quotas.pop("limit")
    for name, quota in quotas.items():
        fake.mkdir(fake.root / pod / name)
        container_cgroup.write_bandwidth(view, f"{pod}/{name}", Bandwidth(quota))
    container_cgroup.write_bandwidth(view, pod, Bandwidth(limit))
    return f"{pod}/app"


def hold(view, group, cpus):
    container_cgroup.write_cpuset(view, group, cpus=CPUSet.parse(cpus))


def quota(view, group):
    return container_cgroup.read_bandwidth(view, group).quota_us


@pytest.mark.parametrize("pod", [POD, SLICE])
def test_the_sum_of_the_containers_limits_is_lifted(fake, view, pod):
    group = make(fake, pod, limit=250_000, app=None, sidecar=50_000, sandbox=None)
    hold(view, group, "2-3")
    assert container_cgroup.throttling(view, group, "sandbox") == Bandwidth(250_000)
    container_cgroup.lift(view, group, "sandbox")
    assert (quota(view, pod), quota(view, f"{pod}/sidecar")) == (None, 50_000)
    assert container_cgroup.throttling(view, group, "sandbox") is None


def test_a_limit_of_the_pods_own_stays(fake, view):
    """Pod-level resources: 1.5 CPUs for two containers, one of them with two CPUs."""
    group = make(fake, POD, limit=150_000, app=None, sidecar=50_000)
    hold(view, group, "2-3")
    container_cgroup.lift(view, group)
    assert quota(view, POD) == 150_000


def test_a_container_without_any_limit_may_use_its_cpus(fake, view):
    group = make(fake, POD, limit=250_000, app=None, helper=None)
    hold(view, group, "2-3")
    hold(view, f"{POD}/helper", "4-7")
    assert container_cgroup.throttling(view, group) is None


def test_quotas_that_the_kubelet_rounded_up_count_as_the_sum(fake, view):
    """A limit of 5m is 1000 us of quota, and 500 us of the pod's."""
    group = make(fake, POD, limit=200_500, app=None, tiny=1_000)
    hold(view, group, "2-3")
    assert container_cgroup.throttling(view, group) == Bandwidth(200_500)


def test_a_pod_that_is_gone_and_groups_that_no_kubelet_made_have_none(fake, view):
    assert container_cgroup.throttling(view, f"{POD}/app") is None
    group = make(fake, "corelane/pod1", limit=100_000, app=None)
    assert container_cgroup.throttling(view, group) is None
    container_cgroup.lift(view, group)
    assert quota(view, "corelane/pod1") == 100_000
