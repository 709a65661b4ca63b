"""Nodes and their topologies as slim structs, in a line."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.meta import Condition, ObjectMeta
from corelane.kube.objects import Node, NodeResourceTopology, NodeSpec, NodeStatus, Taint
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from corelane.workload.request import PodRequest

GIB = 2**30


def node(
    name: str,
    cpus: int = 8,
    *,
    memory: str = "32Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: str = "True",
    version: str = "1",
    **more: str,
) -> Node:
    offered = {"cpu": str(cpus), "memory": memory, "pods": str(pods)} | more
    return Node(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version=version, labels=dict(labels or {})
        ),
        spec=NodeSpec(unschedulable=unschedulable, taints=taints),
        status=NodeStatus(allocatable=dict(offered), conditions=(Condition("Ready", ready),)),
    )


def state(spec: str, name: str = "n", **config: object) -> NodeState:
    return nodes.new(parse_spec(spec, name=name), NodeConfig(**config))  # type: ignore[arg-type]


def topology(name: str, known: NodeState, *, leased: bool = False) -> NodeResourceTopology:
    """What the agent of that node publishes, as it comes over the wire."""
    obj = translate.topology(known.machine, name, known, leased=leased)
    obj["metadata"]["resourceVersion"] = str(known.generation + 1)
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeResourceTopology)


def proposing(request: PodRequest, cpus: Mapping[str, CPUSet]) -> PodRequest:
    """The request of a pod whose scheduler proposed these CPUs."""
    return replace(request, proposal=dict(cpus))
