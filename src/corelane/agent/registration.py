"""The node as the cluster sees it: the Node object, its status, and the lease that says the agent lives."""

import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from corelane import __version__
from corelane.agent.status import rfc3339
from corelane.kernel import proc
from corelane.kube.client import APIError, Client
from corelane.kube.objects import Lease, Node, condition
from corelane.kube.quantity import BINARY_SI, of_value
from corelane.machine.model import Machine
from corelane.node import NodeState

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
SIMULATED: Final = "corelane.io/simulated"
RUNTIME: Final = "corelane.io/runtime"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "corelane does not watch memory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "corelane does not watch disks"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "corelane does not watch process ids"),
    ("Ready", "True", "KubeletReady", "the corelane agent is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the node is. `notice` says what its runtime cannot do."""

    name: str
    simulated: bool
    runtime: str
    enforcement: str
    notice: str = ""
    ips: tuple[str, ...] = ()
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)

    def all_labels(self) -> dict[str, str]:
        where = {SIMULATED: "true"} if self.simulated else {RUNTIME: "local-process"}
        architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/arch": architecture,
            "kubernetes.io/os": "linux",
            **where,
            **self.labels,
        }

    def annotations(self) -> dict[str, str]:
        return {"corelane.io/enforcement": self.enforcement, "corelane.io/notice": self.notice}

    def taints(self) -> list[dict[str, str]]:
        """Nothing runs on a simulated node, so only pods that say they know may go there."""
        return [{"key": SIMULATED, "value": "true", "effect": "NoSchedule"}] if self.simulated else []


@dataclass(frozen=True, slots=True)
class Registered:
    """The Node as the API server has it."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def own_addresses() -> tuple[str, ...]:
    """The address that this machine uses to reach others, or loopback where it reaches none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation; nothing is sent
            return (str(probe.getsockname()[0]),)
        except OSError:
            return ("127.0.0.1",)


def capacity(identity: Identity, machine: Machine) -> dict[str, str]:
    """CPUs that we may use, memory and huge pages of all NUMA nodes, and a number of pods."""
    found = {"cpu": str(len(machine.usable)), "pods": str(identity.pods)}
    memory = memory_of(machine)
    if memory:
        found["memory"] = f"{memory // 1024}Ki"
    for kib in sorted({kib for node in machine.nodes for kib, pages in node.hugepages.items() if pages}):
        total = sum(node.hugepages.get(kib, 0) for node in machine.nodes) * kib * 1024
        found[f"hugepages-{of_value(kib * 1024, BINARY_SI)}"] = str(of_value(total, BINARY_SI))
    return found


def memory_of(machine: Machine) -> int:
    """Bytes of all NUMA nodes together; 0 where the machine's source does not tell."""
    return sum(node.memory for node in machine.nodes)


def status(identity: Identity, ledger: NodeState, since: float, at: float) -> dict[str, Any]:
    """The Node's status; conditions hold since `since`."""
    offered = capacity(identity, ledger.machine)
    return {
        "capacity": offered,
        "allocatable": offered | {"cpu": f"{ledger.allocatable}m"},
        "conditions": [_condition(*one, since, at) for one in _CONDITIONS],
        "addresses": [
            *({"type": "InternalIP", "address": ip} for ip in identity.ips),
            {"type": "Hostname", "address": identity.name},
        ],
        "nodeInfo": _node_info(identity),
    }


def _condition(kind: str, value: str, reason: str, message: str, since: float, at: float) -> dict[str, str]:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": rfc3339(at),
        "lastTransitionTime": rfc3339(since),
    }


def _node_info(identity: Identity) -> dict[str, str]:
    """Facts of this machine; of a simulated one there are none, and it says so."""
    real = not identity.simulated
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "operatingSystem": "linux",
        "kernelVersion": os.uname().release if real else "simulated",
        "osImage": _os_image() if real else "simulated",
        "machineID": _line("/etc/machine-id") if real else "",
        "bootID": proc.boot_id() if real else "",
        "systemUUID": "",
        "containerRuntimeVersion": f"{identity.runtime}://{__version__}",
        "kubeletVersion": f"corelane-v{__version__}",
        "kubeProxyVersion": "",
    }


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


async def register(client: Client, identity: Identity, ledger: NodeState, at: float) -> Registered:
    """Make the Node, or bring an existing one up to date, its status included; returns what it is then.

    Raises APIError.
    """
    metadata = {
        "name": identity.name,
        "labels": identity.all_labels(),
        "annotations": {key: value or None for key, value in identity.annotations().items()},
    }
    try:
        made = {key: value for key, value in identity.annotations().items() if value}
        uid = await _create(client, identity, {**metadata, "annotations": made})
    except APIError as error:
        if error.code != 409:
            raise
        uid = await _update(client, identity, metadata)
    answer = await post_status(client, identity, ledger, since=at, at=at)
    told: dict[str, Any] = answer["metadata"]
    return Registered(uid, told.get("labels") or {}, told.get("annotations") or {})


async def _create(client: Client, identity: Identity, metadata: dict[str, Any]) -> str:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": identity.taints()} if identity.taints() else {},
    }
    return str((await client.create(node))["metadata"]["uid"])


async def _update(client: Client, identity: Identity, metadata: dict[str, Any]) -> str:
    """Labels and annotations are ours; of the taints only our own, so the others are kept."""
    known = await client.get(Node, identity.name)
    ours = identity.taints()
    body: dict[str, Any] = {"metadata": metadata}
    missing = [one for one in ours if not any(taint.key == one["key"] for taint in known.spec.taints)]
    if missing:
        kept = [_taint(taint) for taint in known.spec.taints]
        version = {"resourceVersion": known.metadata.resource_version}
        body = {"metadata": metadata | version, "spec": {"taints": kept + missing}}
    await client.patch(Node, identity.name, body)
    return known.metadata.uid


def _taint(taint: Any) -> dict[str, str]:
    named = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {key: value for key, value in named.items() if value}


async def post_status(
    client: Client, identity: Identity, ledger: NodeState, *, since: float, at: float
) -> dict[str, Any]:
    """Write the Node's status; the answer is the whole Node. Raises APIError."""
    body = {"status": status(identity, ledger, since, at)}
    return await client.patch(Node, identity.name, body, kind_of_patch="strategic", subresource="status")


def raw_allocatable(ledger: NodeState) -> str | None:
    """What is allocatable without amplification, in Koordinator's form; None where nothing is amplified."""
    ratio = ledger.config.pools.amplification
    if ledger.config.policy != "pools" or ratio <= 1:
        return None
    return json.dumps({"cpu": f"{ledger.allocatable * ratio.denominator // ratio.numerator}m"})


async def annotate(client: Client, name: str, key: str, value: str | None) -> None:
    """Set an annotation of the Node, or take it away. Raises APIError."""
    await client.patch(Node, name, {"metadata": {"annotations": {key: value}}})


async def is_ready(client: Client, name: str) -> bool:
    """Whether the API server still has the Node, and for ready. Raises APIError but for 404."""
    try:
        node = await client.get(Node, name)
    except APIError as error:
        if error.code == 404:
            return False
        raise
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


async def renew_lease(client: Client, name: str, owner_uid: str, at: float) -> None:
    """Say that the agent lives, as kubelets do (KEP-589). Raises APIError."""
    now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    try:
        await client.patch(Lease, name, {"spec": {"renewTime": now}}, namespace=LEASE_NAMESPACE)
    except APIError as error:
        if error.code != 404:
            raise
        await client.create(_lease(name, owner_uid, now))


def _lease(name: str, owner_uid: str, now: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }
