"""`corelane up` beside a kubelet: its CPUs are nobody's until its pods end; devices of simulated nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.node.kubelet.checkpoint import Checkpoint, encode
from corelane.node.ledger import NodeState
from support.up import up

MINE = CPUSet(os.sched_getaffinity(0))


@pytest.mark.skipif(len(MINE) < 2, reason="one CPU: the shared pool needs it")
def test_what_a_kubelet_pinned_is_held_as_long_as_its_file_says(tmp_path: Path) -> None:
    theirs = CPUSet([max(MINE)])
    state = tmp_path / "cpu_manager_state"
    state.write_bytes(encode(Checkpoint("static", entries={"u": {"app": theirs}})))
    settings = tmp_path / "node.yaml"
    settings.write_text(
        f"reconcileSeconds: 1\nkubeletState: {state}\n"
        "simulated: {devices: {example.com/nic: {0: 2, 1: 1}}}\n"
    )
    extra = ("--node-name", "here", "--port", "0", "--nodes", "1", "--machine", "socket:2 core:4")
    with up(tmp_path / "data", "--node-config", str(settings), *extra) as cluster:

        async def ledger(client: KubeClient) -> NodeState:
            return translate.state_from_topology(await client.get(NodeResourceTopology, "here"))

        async def offered(client: KubeClient) -> Any:
            return (await client.get(Node, "sim-1")).status.allocatable["example.com/nic"]

        async def is_free(client: KubeClient) -> bool:
            return (await ledger(client)).shared_pool == MINE

        found = cluster.call(ledger)
        assert (found.bound, found.shared_pool) == (theirs, MINE - theirs)
        assert cluster.call(offered) == "3"
        state.write_bytes(encode(Checkpoint("static")))
        cluster.until(is_free)
