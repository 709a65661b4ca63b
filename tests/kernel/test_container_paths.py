"""Where a container's cgroup lies: from its OCI specification, /proc, or its id."""

import pytest

from corelane.kernel import container_paths
from corelane.kernel.cgroup import CgroupsUnavailable
from corelane.kernel.container_paths import group_of_process, group_of_spec, kubelet_ancestors, locate, view

ID = "de783b150ae58e62a3e9d2b96994458fa01bcc28c642ae435d4a5836a3199ce8"
POD = "11111111_2222_4333_8444_555555555555"
SCOPE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD}.slice/cri-containerd-{ID}.scope"


@pytest.mark.parametrize(
    ("cgroups_path", "group"),
    [
        (f"/kubepods/burstable/pod1/{ID}", f"kubepods/burstable/pod1/{ID}"),
        (f"kubepods-burstable-pod{POD}.slice:cri-containerd:{ID}", SCOPE),
        (f"kubepods-pod{POD}.slice:crio:{ID}", f"kubepods.slice/kubepods-pod{POD}.slice/crio-{ID}.scope"),
        ("system.slice:docker:abc", "system.slice/docker-abc.scope"),
        (":runc:abc", "system.slice/runc-abc.scope"),
        ("-.slice::abc", "abc.scope"),
        ("a-b.slice:x:nested.slice", "a.slice/a-b.slice/nested.slice"),
        ("/odd:name:with/colons", "odd:name:with/colons"),
    ],
)
def test_the_specifications_path_is_a_directory_or_a_systemd_unit(cgroups_path, group):
    assert group_of_spec(cgroups_path) == group


def version_2(root):
    root.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpuset cpu memory\n")
    return view(root)


def version_1(root):
    for name in ("cpuset", "cpu,cpuacct", "memory"):
        (root / name).mkdir(parents=True)
    return view(root)


def test_version_2_is_one_hierarchy_and_version_1_one_a_controller(tmp_path):
    two, one = version_2(tmp_path / "2"), version_1(tmp_path / "1")
    assert (two.version, two.cpuset, two.cpu) == (2, tmp_path / "2", tmp_path / "2")
    assert (one.version, one.cpuset, one.cpu) == (1, tmp_path / "1/cpuset", tmp_path / "1/cpu,cpuacct")


def test_a_directory_without_cgroups_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(CgroupsUnavailable, match="mount the node's /sys/fs/cgroup there"):
        view(tmp_path)


def test_a_version_2_hierarchy_without_cpuset_is_refused(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    with pytest.raises(CgroupsUnavailable, match="without the controllers cpuset"):
        view(tmp_path)


def process(tmp_path, text):
    directory = tmp_path / "proc/7"
    directory.mkdir(parents=True)
    (directory / "cgroup").write_text(text)
    return tmp_path / "proc"


def test_proc_names_the_group_of_the_hierarchy_with_cpusets(tmp_path):
    proc = process(tmp_path, f"5:cpuset:/kubepods/pod1/{ID}\n4:cpu,cpuacct:/other\n0::/unified\n")
    assert group_of_process(version_1(tmp_path / "1"), 7, proc) == f"kubepods/pod1/{ID}"
    assert group_of_process(version_2(tmp_path / "2"), 7, proc) == "unified"
    assert group_of_process(version_2(tmp_path / "2"), 8, proc) is None


def test_the_specification_goes_before_the_process_which_may_live_further_down(tmp_path):
    found = version_2(tmp_path / "2")
    (found.cpuset / SCOPE / "init.scope").mkdir(parents=True)
    proc = process(tmp_path, f"0::/{SCOPE}/init.scope\n")
    spec = f"kubepods-burstable-pod{POD}.slice:cri-containerd:{ID}"
    assert locate(found, ID, spec, 7, proc) == SCOPE
    assert locate(found, ID, "", 7, proc) == SCOPE, "cut after the container's own directory"


def test_a_path_outside_our_namespace_is_searched_by_the_containers_id(tmp_path):
    found = version_2(tmp_path / "2")
    (found.cpuset / SCOPE).mkdir(parents=True)
    (found.cpuset / f"system.slice/crio-conmon-{ID}.scope").mkdir(parents=True)
    proc = process(tmp_path, f"0::/../../kubepods-burstable-pod{POD}.slice/cri-containerd-{ID}.scope\n")
    assert locate(found, ID, "", 7, proc) == SCOPE


def test_a_container_without_a_group_here_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(container_paths, "_search", lambda *_: pytest.fail("nothing to search for"))
    assert locate(version_2(tmp_path), ID, f"/kubepods/pod1/{ID}") is None


def test_the_group_of_a_pods_virtual_machine_is_not_that_of_a_container(tmp_path):
    found = version_2(tmp_path / "2")
    (found.cpuset / "kubepods/pod1/kata_overhead").mkdir(parents=True)
    proc = process(tmp_path, "0::/kubepods/pod1/kata_overhead\n")
    assert locate(found, ID, f"/kubepods/pod1/{ID}", 7, proc) is None
    assert locate(found, ID, "", 7, proc) is None


@pytest.mark.parametrize(
    ("group", "above"),
    [
        ("kubepods/burstable/pod1/c", ["kubepods", "kubepods/burstable", "kubepods/burstable/pod1"]),
        ("system/kubepods/pod1/c", ["system/kubepods", "system/kubepods/pod1"]),
        (
            "test/kubelet-kubepods.slice/p.slice/c.scope",
            ["test/kubelet-kubepods.slice", "test/kubelet-kubepods.slice/p.slice"],
        ),
        ("system.slice/docker-x.scope", []),
        ("kubepods", []),
    ],
)
def test_the_kubelets_groups_above_a_container_begin_with_kubepods(group, above):
    assert kubelet_ancestors(group) == above
