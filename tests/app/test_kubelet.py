"""A kubelet beside corelane: its running pods, from its cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.embedded.up import cluster
from corelane.node.kubelet.checkpoint import Checkpoint, encode
from support.kubepods import Kubepods

UID = "32b14702-2efe-4be9-a9da-f3b779175846"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("systemd", [True, False])
def test_pods_with_processes_in_their_cgroups_run(tmp_path: Path, version: int, systemd: bool) -> None:
    pods = Kubepods(tmp_path, version=version, systemd=systemd)
    pods.add(UID, "c0ffee", "1-2")
    pods.add("44444444-0000-0000-0000-000000000000", "dead", "3", alive=False)
    assert cluster.kubelet_pods(str(tmp_path / "sys/fs/cgroup")) == {UID}


def test_running_pods_are_read_once_the_kubelet_has_policy_none(tmp_path: Path) -> None:
    Kubepods(tmp_path).add(UID, "c0ffee", "1-2")
    path = tmp_path / "cpu_manager_state"
    beside = cluster.kubelet_beside(path, str(tmp_path / "sys/fs/cgroup"))
    assert beside is not None
    path.write_bytes(encode(Checkpoint("static", entries={UID: {"app": CPUSet([1, 2])}})))
    assert beside.read().running is None
    path.write_bytes(encode(Checkpoint("none")))
    assert beside.read().running == {UID}


def test_pods_out_of_view_are_unknown_and_keep_their_cpus(tmp_path: Path) -> None:
    """With a cgroup namespace of its own an agent sees no cgroup of the kubelet."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu")
    (tmp_path / "init.scope").mkdir()
    assert cluster.kubelet_pods(str(tmp_path)) is None
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(encode(Checkpoint("none")))
    beside = cluster.kubelet_beside(path, str(tmp_path))
    assert beside is not None
    assert beside.read().running is None


def test_without_cgroups_the_fault_is_reported_and_nothing_is_released(tmp_path: Path) -> None:
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(encode(Checkpoint("none")))
    beside = cluster.kubelet_beside(path, str(tmp_path))
    assert beside is not None
    state = beside.read()
    assert state.checkpoint is None
    assert "has no cgroups" in state.fault


def test_without_a_state_file_there_is_no_kubelet() -> None:
    assert cluster.kubelet_beside(None) is None


def test_pods_have_the_names_of_their_log_directories(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / f"shop_front-0_{UID}").mkdir(parents=True)
    (logs / "something_else").mkdir()
    assert cluster.kubelet_pod_names(logs) == {UID: "shop/front-0"}
    assert cluster.kubelet_pod_names(tmp_path / "nowhere") == {}
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(encode(Checkpoint("static", entries={UID: {"app": CPUSet([1, 2])}})))
    beside = cluster.kubelet_beside(path, logs=logs)
    assert beside is not None
    assert beside.read().names == {UID: "shop/front-0"}
