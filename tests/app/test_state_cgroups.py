"""Containers' cpusets are read from both cgroup versions and drivers, at any depth."""

import pytest

from corelane.app.state import cgroups
from corelane.app.state.files import StateFileError
from corelane.cpuset import CPUSet
from support.kubepods import Kubepods, write

UID = "69aa6124-4e0e-4c66-94ea-feae7df25b68"
A, B = "a" * 64, "b" * 64


def found(tree: Kubepods):
    return cgroups.read(str(tree.root / "sys/fs/cgroup"))


@pytest.mark.parametrize("systemd", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_every_running_container_is_found_with_its_pod_and_class(tmp_path, version, systemd):
    tree = Kubepods(tmp_path, version=version, systemd=systemd)
    tree.add(UID, A, "2-3")
    tree.add("0123456789abcdef0123456789abcdef", B, "0-1,4-15", qos="burstable")
    one, other = sorted(found(tree), key=lambda group: group.id)
    assert (one.uid, one.id, one.qos, one.cpus) == (UID, A, "", CPUSet.parse("2-3"))
    assert (other.uid, other.id, other.qos) == ("0123456789abcdef0123456789abcdef", B, "burstable")
    assert one.pod_cpus == CPUSet(range(16))


@pytest.mark.parametrize("version", [1, 2])
def test_groups_without_processes_are_left_out(tmp_path, version):
    tree = Kubepods(tmp_path, version=version)
    tree.add(UID, A, "2-3", alive=False)
    assert found(tree) == []


def test_a_container_whose_processes_are_one_level_down_runs(tmp_path):
    tree = Kubepods(tmp_path, version=1)
    path = tree.add(UID, A, "2-3", alive=False)
    write(path / "container/cgroup.procs", "12")
    assert [group.id for group in found(tree)] == [A]


def test_monitors_of_cri_o_are_not_containers(tmp_path):
    tree = Kubepods(tmp_path)
    scope = tree.add(UID, A, "2-3").parent
    write(scope / f"crio-conmon-{B}.scope/cpuset.cpus", "0")
    write(scope / f"crio-{B}.scope/cpuset.cpus", "4-5")
    assert {(group.id, str(group.cpus)) for group in found(tree)} == {(A, "2-3"), (B, "4-5")}


@pytest.mark.parametrize("below", ["kubelet", "system.slice/k3s.service", "kubelet.slice"])
def test_the_hierarchy_may_begin_further_down(tmp_path, below):
    tree = Kubepods(tmp_path, systemd=False)
    base = tmp_path / "sys/fs/cgroup"
    tree.add(UID, A, "2-3")
    (base / below).mkdir(parents=True)
    (base / "kubepods").rename(base / below / "kubepods")
    assert [(group.uid, group.id) for group in found(tree)] == [(UID, A)]


def test_the_kubelets_prefix_of_slices_is_accepted(tmp_path):
    base = tmp_path / "sys/fs/cgroup"
    write(base / "cgroup.controllers", "cpuset")
    slices = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
    pod = f"kubelet-kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
    write(base / slices / pod / f"cri-containerd-{A}.scope/cpuset.cpus", "4")
    only = cgroups.read(str(base))
    assert [(group.uid, group.qos, group.id) for group in only] == [(UID, "besteffort", A)]


@pytest.mark.parametrize("qos", ["", "burstable", "besteffort"])
@pytest.mark.parametrize("below", ["system.slice/containerd.service", "", "system.slice/k3s.service"])
def test_containers_of_a_runtime_without_systemds_driver_are_found_by_their_triple(tmp_path, below, qos):
    tree = Kubepods(tmp_path, version=1)
    pod = f"kubepods-{qos + '-' if qos else ''}pod{UID.replace('-', '_')}.slice"
    write(tree.base / below / f"{pod}:cri-containerd:{A}/cpuset.cpus", "2-3")
    write(tree.base / below / f"{pod}:cri-containerd:{B}/cgroup.procs", "")
    (only,) = found(tree)
    assert (only.uid, only.id, only.qos, str(only.cpus)) == (UID, A, qos, "2-3")


def test_a_directory_without_cgroups_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(StateFileError, match=r"has no cgroups.*--root"):
        cgroups.read(str(tmp_path))


def test_an_invalid_cpuset_is_an_error_that_names_the_file(tmp_path):
    tree = Kubepods(tmp_path)
    tree.add(UID, A, "2-x")
    with pytest.raises(StateFileError, match=r"cpuset\.cpus: '2-x' is not a CPU list"):
        found(tree)
