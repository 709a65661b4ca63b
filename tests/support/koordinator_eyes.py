"""How Koordinator's scheduler reads a NodeResourceTopology, written anew from its sources at a7a1b76b.

pkg/scheduler/plugins/nodenumaresource: topology_options.go, util.go.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from corelane.cpuset import CPUSet

_NODE, _KUBELET = "node.koordinator.sh/", "kubelet.koordinator.sh/"


@dataclass(frozen=True)
class Eyes:
    """`cpus` are rows of socket, core and NUMA node; `numa` is milliCPU, amplified, without the reserved."""

    cpus: dict[int, tuple[int, int, int]]
    reserved: CPUSet
    numa: dict[int, int]
    memory: dict[int, str]
    policy: str
    full_pcpus_only: bool

    @property
    def free(self) -> CPUSet:
        """What it would bind pods to, if none of its own pods were there."""
        return CPUSet(self.cpus) - self.reserved


def read(published: dict[str, Any], node_annotations: dict[str, str]) -> Eyes:
    annotations = published["metadata"]["annotations"]

    def told(key: str) -> Any:
        return json.loads(annotations[key]) if key in annotations else None

    cpus = {
        row["id"]: (row["socket"], row["core"], row["node"]) for row in told(f"{_NODE}cpu-topology")["detail"]
    }
    kubelet = told(f"{_KUBELET}cpu-manager-policy") or {}
    system = told(f"{_NODE}system-qos-resource") or {}
    reserved = CPUSet.parse(kubelet.get("reservedCPUs", ""))
    reserved |= CPUSet.parse((told(f"{_NODE}reservation") or {}).get("reservedCPUs", ""))
    for one in told(f"{_NODE}pod-cpu-allocs") or ():
        if one.get("managedByKubelet") and one.get("uid"):
            reserved |= CPUSet.parse(one["cpuset"])
    if system.get("cpusetExclusive", True):
        reserved |= CPUSet.parse(system.get("cpuset", ""))
    zones = {
        int(zone["name"].split("node-")[1]): zone for zone in published["zones"] if zone["type"] == "Node"
    }
    numa = {
        id_: milli(zone) - 1000 * sum(cpus[c][2] == id_ for c in reserved if c in cpus)
        for id_, zone in zones.items()
    }
    ratio = json.loads(node_annotations.get(f"{_NODE}resource-amplification-ratio", "{}")).get("cpu", 1)
    if told(f"{_NODE}resource-amplification-ratio") is None and ratio > 1:
        numa = {id_: math.ceil(amount * ratio) for id_, amount in numa.items()}
    options = kubelet.get("options") or {}
    return Eyes(
        cpus,
        reserved,
        numa,
        {id_: amount(zone, "memory") for id_, zone in zones.items()},
        policy(published.get("topologyPolicies", ())),
        kubelet.get("policy") == "static" and options.get("full-pcpus-only") == "true",
    )


def milli(zone: dict[str, Any]) -> int:
    text = amount(zone, "cpu")
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text or 0)


def amount(zone: dict[str, Any], name: str) -> str:
    return next((one["allocatable"] for one in zone.get("resources", ()) if one["name"] == name), "")


def policy(words: tuple[str, ...] | list[str]) -> str:
    """The first word that it knows."""
    known = {
        "BestEffort": "BestEffort",
        "Restricted": "Restricted",
        "SingleNUMANodePodLevel": "SingleNUMANode",
    }
    return next((known[word] for word in words if word in known), "")
