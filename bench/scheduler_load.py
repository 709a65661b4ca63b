"""The cluster that the scheduler's benchmarks use: equal nodes, and pods of 20 shapes, from a seed."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState

Object = dict[str, Any]

MACHINE: Final = "socket:2 numa:2 core:16 smt:2"
CPUS: Final = 128
MEMORY: Final = "512Gi"
SCHEDULER: Final = "corelane-scheduler"
ZONES: Final = 10
APPS: Final = 50


def state(name: str, policy: str = "pools", **config: Any) -> NodeState:
    """Return an empty node's ledger."""
    return nodes.new(parse_spec(MACHINE, name=name), NodeConfig(policy=policy, **config))


def node_object(number: int) -> Object:
    """Return a Node as a kubelet registers it."""
    name = node_name(number)
    offered = {"cpu": str(CPUS), "memory": MEMORY, "pods": "250", "ephemeral-storage": "900Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
            },
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def node_name(number: int) -> str:
    return f"bench-node-{number:05}"


def topology_object(name: str, known: NodeState) -> Object:
    """Return what the node's agent publishes."""
    return translate.topology(known.machine, name, known)


class Topologies:
    """Topologies of equal nodes: written and read once, then named."""

    def __init__(self, known: NodeState) -> None:
        self.object = topology_object("template", known)
        self._slim = read({**self.object, "metadata": {**self.object["metadata"]}}, NodeResourceTopology)

    def slim(self, name: str) -> NodeResourceTopology:
        metadata = replace(self._slim.metadata, name=name, uid=f"uid-{name}", resource_version="1")
        return replace(self._slim, metadata=metadata)

    def named(self, name: str) -> Object:
        return {**self.object, "metadata": {**self.object["metadata"], "name": name}}


def slim_node(number: int) -> Node:
    return read(node_object(number), Node)


def read(obj: Object, kind: type[Any]) -> Any:
    """Return the slim struct, as it comes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)


# Pods.


def pod_object(name: str, containers: list[Object], **more: Any) -> Object:
    labels = more.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "schedulerName": more.pop("scheduler", SCHEDULER),
            "containers": containers,
            "terminationGracePeriodSeconds": 0,
            **more,
        },
    }


def container(requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> Object:
    return {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": dict(requests), **({"limits": dict(limits)} if limits else {})},
    }


def exclusive(name: str, cpus: int, memory: str = "4Gi", **more: Any) -> Object:
    """A Guaranteed pod with a whole number of CPUs."""
    amounts = {"cpu": str(cpus), "memory": memory}
    return pod_object(name, [container(amounts, amounts)], **more)


def burstable(name: str, cpu: str, memory: str, **more: Any) -> Object:
    return pod_object(name, [container({"cpu": cpu, "memory": memory})], **more)


def _affine(name: str, app: str, *, anti: bool) -> Object:
    """Anti-affinity to replicas on the same node, or affinity to them in the same zone."""
    term = {
        "labelSelector": {"matchLabels": {"app": app}},
        "topologyKey": "kubernetes.io/hostname" if anti else "topology.kubernetes.io/zone",
    }
    kind = "podAntiAffinity" if anti else "podAffinity"
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return burstable(name, "500m", "1Gi", labels={"app": app}, affinity=affinity)


def pods(seed: int, *, affinity: bool = True) -> Iterator[Object]:
    """Yield pods without end: 60 % exclusive (12 shapes), 30 % burstable (6), 10 % with affinity (2)."""
    chance = random.Random(seed)  # noqa: S311
    number = 0
    while True:
        name, part = f"pod-{number:06}", chance.random()
        number += 1
        if part < 0.6 or (part >= 0.9 and not affinity):
            yield exclusive(name, chance.choice((2, 4, 8)), chance.choice(("1Gi", "2Gi", "4Gi", "8Gi")))
        elif part < 0.9:
            yield burstable(name, chance.choice(("250m", "500m", "1500m")), chance.choice(("512Mi", "2Gi")))
        elif chance.random() < 0.5:
            # 50 apps with anti-affinity to themselves: replicas of one app go to different nodes.
            yield _affine(name, f"apart-{chance.randrange(APPS)}", anti=True)
        else:
            yield _affine(name, f"near-{chance.randrange(APPS)}", anti=False)


def slim_pods(seed: int, count: int, *, affinity: bool = True) -> list[Pod]:
    """Return `count` of these pods as slim structs, with UIDs."""
    made = []
    for obj, _ in zip(pods(seed, affinity=affinity), range(count), strict=False):
        obj["metadata"] |= {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1"}
        made.append(read(obj, Pod))
    return made
