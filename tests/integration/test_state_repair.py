"""`corelane state verify` and `repair` judged by a real kubelet: it starts where they say that it does."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from support.cluster_pods import best_effort, guaranteed, pod

pytestmark = pytest.mark.integration

ONLINE = CPUSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())
RESERVED = CPUSet([min(ONLINE)])
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(RESERVED)}
NONE = {"cpuManagerPolicy": None, "reservedSystemCPUs": None}


@pytest.fixture
def node(cluster):
    """A stopped kubelet with policy static, and a running pod with an exclusive CPU."""
    if len(ONLINE) < 2:
        pytest.skip("needs two CPUs")
    node = cluster.node
    node.restart(drop_cpu_state=True, **STATIC)
    cluster.run(
        pod("own", guaranteed("app", 1), node=node.name), pod("shares", best_effort("app"), node=node.name)
    )
    own = cluster.cpus("own")
    cluster.expect_cpus({"own": own, "shares": ONLINE - own})
    node.stop()
    yield node
    node.restart(drop_cpu_state=True, **NONE)
    cluster.forget_pods()


def state(node, command, *arguments):
    config = node.home / "config.yaml"
    options = ["state", command, str(node.cpu_state), "--kubelet-config", str(config), *arguments]
    return CliRunner().invoke(main, options)


def truncated(file):
    file.write_bytes(file.read_bytes()[:40])


def wrong_checksum(file):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"checksum": 1}))


def policy_none(file):
    file.write_bytes(b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')


def foreign_cpu(file):
    """A CPU that this machine does not have."""
    found = checkpoint.decode(file.read_bytes())
    cpus = found.default | CPUSet([max(ONLINE) + 1])
    file.write_bytes(checkpoint.encode(checkpoint.Checkpoint("static", cpus, found.entries)))


@pytest.mark.parametrize("damage", [truncated, wrong_checksum, policy_none, foreign_cpu])
def test_a_damaged_file_is_found_as_the_kubelet_finds_it_and_repaired_from_what_runs(cluster, node, damage):
    before, own = checkpoint.decode(node.cpu_state.read_bytes()), cluster.cpus("own")
    container = cluster.container("own")
    assert state(node, "verify").exit_code == 0
    damage(node.cpu_state)
    found = state(node, "verify")
    assert found.exit_code != 0, found.output
    node.expect_refusal()

    repaired = state(node, "repair", f"--cri={cluster.runtime.endpoint}", "--yes")
    assert repaired.exit_code == 0, repaired.output
    assert state(node, "verify").exit_code == 0
    assert checkpoint.decode(node.cpu_state.read_bytes()) == before
    node.start()
    cluster.expect_cpus({"own": own, "shares": ONLINE - own})
    assert cluster.container("own") == container
    assert checkpoint.decode(node.cpu_state.read_bytes()).entries == before.entries


def test_an_undamaged_file_lets_it_start(cluster, node):
    own = cluster.cpus("own")
    assert state(node, "verify").exit_code == 0
    node.start()
    cluster.expect_cpus({"own": own, "shares": ONLINE - own})
