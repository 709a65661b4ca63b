"""`corelane allocate`: the CPUs that pods would get on a node, and why."""

from __future__ import annotations

from typing import Any

import click

from corelane.cli import _kubelet, _options, _pools
from corelane.cli._errors import Command, Fault
from corelane.cli._pools import NodeOptions, PodOptions

_KUBELETS = (
    "kubernetes_version",
    "kubelet_config",
    "options",
    "topology_policy",
    "topology_scope",
    "topology_options",
)
"""Options that describe a kubelet's CPU and topology managers."""


@click.command(cls=Command)
@_pools.pods
@_pools.node
@_options.gathered(
    "kubelet",
    dict,
    _kubelet.settings_of_kubelet,
    _kubelet.resources,
    _options.choice("--topology-scope", "container pod", "Topology manager scope.  [default: container]"),
    _options.many(
        "--topology-option",
        "NAME=VALUE",
        "A topology manager option, such as prefer-closest-numa-nodes=true",
        "topology_options",
    ),
)
@_options.output("table json svg")
def allocate(pods: PodOptions, node: NodeOptions, kubelet: dict[str, Any], output: str) -> None:
    """Show which CPUs a pod would get on a node, and why. Nothing is changed.

    The answer has each step of the decision and the runner-up; with memory, huge pages or devices, their NUMA
    nodes and the topology hints; under policy pools, each term of the objective, and for a rejected pod the
    changes by which it would fit.

    The decision is that of corelane's node agent. With --kubernetes-version it is exactly that of the
    kubelet, which may leave the shared pool empty. Exits with 1 if a pod is rejected.

    \b
    corelane allocate --cpus 4
    corelane allocate --cpus 16 --machine 'socket:2 core:12 smt:2' --option full-pcpus-only=true
    corelane allocate -f pod.yaml --state /var/lib/kubelet/cpu_manager_state --reserved-cpus 0,32
    corelane allocate --cpus 8 -o svg > cpus.svg
    corelane allocate --cpus 6 --policy pools --qos LSE --exclusive core --numa-policy SingleNUMANode
    corelane allocate -f pods.yaml --compare --machine 'socket:2 numa:2 core:16 smt:2'
    corelane allocate --cpus 4 --memory 8Gi --device nvidia.com/gpu=1 --machine 'socket:2 core:8 smt:2' \\
      --memory-policy Static --reserved-memory 0:memory=1Gi --node-device nvidia.com/gpu=gpu0@0,gpu1@1
    """  # noqa: D301 - click wants the character itself
    if node.compare and output == "svg":
        raise Fault("--compare has no drawing; use -o table or -o json")
    of_kubelet = any(kubelet[name] for name in _KUBELETS)
    policy = _pools.policy(pods, node, version=kubelet["kubernetes_version"], of_kubelet=of_kubelet)
    from corelane.app import allocate as command
    from corelane.app.allocate import NodeQuery

    settings = _kubelet.settings({**kubelet, "policy": policy})
    resources = _kubelet.node_resources(kubelet)
    where = NodeQuery(node.machine, node.state, settings, resources, node.overrides())
    answer = command.compare if node.compare else command.main
    raise SystemExit(answer(pods.requests(), where, output, click.echo))
