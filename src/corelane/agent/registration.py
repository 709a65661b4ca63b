"""The node as the cluster sees it: the Node object, its status, and the lease that says the agent lives."""

import json
import os
import platform
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from corelane import __version__
from corelane.agent.status import rfc3339
from corelane.kernel import proc
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node
from corelane.machine.model import Machine
from corelane.node import NodeState
from corelane.placement.memory import MEMORY, hugepages
from corelane.quantity import BINARY_SI, of_value

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
SIMULATED: Final = "corelane.io/simulated"
RUNTIME: Final = "corelane.io/runtime"
DEVICES: Final = "corelane.io/devices"
"""Annotation: which of the Node's extended resources are ours, so that they go when they are no more."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "corelane does not watch memory"),
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
class Disk:
    """Why the ledger cannot be written, "" if it can; since when that is so."""

    fault: str = ""
    since: float = 0.0

    def condition(self, since: float, at: float) -> dict[str, str]:
        """The Node's DiskPressure; `since` is when the agent came up."""
        if self.fault:
            told = ("DiskPressure", "True", "KubeletHasDiskPressure", self.fault)
        else:
            told = (
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "the ledger can be written",
            )
        return _condition(*told, max(since, self.since), at)


@dataclass(frozen=True, slots=True)
class Registered:
    """The Node as the API server has it."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


_WRITABLE: Final = Disk()


def own_addresses() -> tuple[str, ...]:
    """The address that this machine uses to reach others, or loopback where it reaches none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation; nothing is sent
            return (str(probe.getsockname()[0]),)
        except OSError:
            return ("127.0.0.1",)


def capacity(identity: Identity, ledger: NodeState) -> dict[str, str]:
    """CPUs that we may use, memory and huge pages of all NUMA nodes, a number of pods, and devices."""
    cpus = {"cpu": str(len(ledger.machine.usable)), "pods": str(identity.pods)}
    return cpus | _in_words(_memory(ledger.machine)) | _devices(ledger)


def allocatable(identity: Identity, ledger: NodeState) -> dict[str, str]:
    """What pods may request of it together, without what the memory manager and settings keep back."""
    offered = _memory(ledger.machine)
    if MEMORY in offered:
        offered[MEMORY] = max(0, offered[MEMORY] - ledger.withheld_memory)
    for name, size in _kept_back(ledger).items():
        if name in offered:
            offered[name] = max(0, offered[name] - size)
    return capacity(identity, ledger) | {"cpu": f"{ledger.allocatable}m"} | _in_words(offered)


def memory_of(machine: Machine) -> int:
    """Bytes of all NUMA nodes together; 0 where the machine's source does not tell."""
    return sum(node.memory for node in machine.nodes)


def memory_for_pods(ledger: NodeState) -> int:
    """Bytes that the memory manager leaves to pods; 0 where the machine's source does not tell."""
    return max(0, memory_of(ledger.machine) - _kept_back(ledger).get(MEMORY, 0))


def memory_offered(ledger: NodeState) -> int:
    """Bytes that pods may request together: what is for them, but for what settings keep."""
    return max(0, memory_for_pods(ledger) - ledger.withheld_memory)


def _memory(machine: Machine) -> dict[str, int]:
    """Memory and huge pages by name, in bytes."""
    found = {MEMORY: memory_of(machine)} if memory_of(machine) else {}
    for kib in sorted({kib for node in machine.nodes for kib, pages in node.hugepages.items() if pages}):
        found[hugepages(kib)] = sum(node.hugepages.get(kib, 0) for node in machine.nodes) * kib * 1024
    return found


def _kept_back(ledger: NodeState) -> dict[str, int]:
    found: dict[str, int] = {}
    for of in ledger.config.memory.reserved.values():
        for name, size in of.items():
            found[name] = found.get(name, 0) + size
    return found


def _in_words(sizes: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{size // 1024}Ki" if name == MEMORY else str(of_value(size, BINARY_SI))
        for name, size in sizes.items()
    }


def _devices(ledger: NodeState) -> dict[str, str]:
    return {name: str(len(devices)) for name, devices in ledger.config.devices.items()}


def status(
    identity: Identity, ledger: NodeState, since: float, at: float, disk: Disk = _WRITABLE
) -> dict[str, Any]:
    """The Node's status; conditions hold since `since`."""
    return {
        "capacity": capacity(identity, ledger),
        "allocatable": allocatable(identity, ledger),
        "conditions": [disk.condition(since, at), *(_condition(*one, since, at) for one in _CONDITIONS)],
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


async def register(
    client: KubeClient, identity: Identity, ledger: NodeState, at: float, disk: Disk = _WRITABLE
) -> Registered:
    """Make the Node, or bring an existing one up to date, its status included; returns what it is then.

    Raises APIError.
    """
    annotations = identity.annotations() | {DEVICES: ",".join(sorted(ledger.config.devices))}
    metadata = {
        "name": identity.name,
        "labels": identity.all_labels(),
        "annotations": {key: value or None for key, value in annotations.items()},
    }
    gone: Iterable[str] = ()
    try:
        made = {key: value for key, value in annotations.items() if value}
        uid = await _create(client, identity, {**metadata, "annotations": made})
    except APIError as error:
        if error.code != 409:
            raise
        known = await _update(client, identity, metadata)
        uid, gone = known.metadata.uid, _no_more(known, ledger)
    answer = await post_status(client, identity, ledger, since=at, at=at, gone=gone, disk=disk)
    told: dict[str, Any] = answer["metadata"]
    return Registered(uid, told.get("labels") or {}, told.get("annotations") or {})


async def _create(client: KubeClient, identity: Identity, metadata: dict[str, Any]) -> str:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": identity.taints()} if identity.taints() else {},
    }
    return str((await client.create(node))["metadata"]["uid"])


def _no_more(known: Node, ledger: NodeState) -> set[str]:
    """The devices that we offered once, and do no more; those of others are theirs."""
    before = set(filter(None, known.metadata.annotations.get(DEVICES, "").split(",")))
    return before - ledger.config.devices.keys()


async def _update(client: KubeClient, identity: Identity, metadata: dict[str, Any]) -> Node:
    """The Node as it was. Labels and annotations are ours; of the taints only our own, others are kept."""
    known = await client.get(Node, identity.name)
    ours = identity.taints()
    body: dict[str, Any] = {"metadata": metadata}
    missing = [one for one in ours if not any(taint.key == one["key"] for taint in known.spec.taints)]
    if missing:
        kept = [_taint(taint) for taint in known.spec.taints]
        version = {"resourceVersion": known.metadata.resource_version}
        body = {"metadata": metadata | version, "spec": {"taints": kept + missing}}
    await client.patch(Node, identity.name, body)
    return known


def _taint(taint: Any) -> dict[str, str]:
    named = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {key: value for key, value in named.items() if value}


async def post_status(
    client: KubeClient,
    identity: Identity,
    ledger: NodeState,
    *,
    since: float,
    at: float,
    gone: Iterable[str] = (),
    disk: Disk = _WRITABLE,
) -> dict[str, Any]:
    """Write the Node's status, without the resources that are `gone`; the whole Node. Raises APIError."""
    now = status(identity, ledger, since, at, disk)
    for part in ("capacity", "allocatable"):
        now[part] |= dict.fromkeys(gone)
    body = {"status": now}
    return await client.patch(Node, identity.name, body, kind_of_patch="strategic", subresource="status")


def raw_allocatable(ledger: NodeState) -> str | None:
    """What is allocatable without amplification, in Koordinator's form; None where nothing is amplified."""
    ratio = ledger.config.pools.amplification
    if ledger.config.policy != "pools" or ratio <= 1:
        return None
    return json.dumps({"cpu": f"{ledger.allocatable * ratio.denominator // ratio.numerator}m"})


async def annotate(client: KubeClient, name: str, key: str, value: str | None) -> None:
    """Set an annotation of the Node, or take it away. Raises APIError."""
    await client.patch(Node, name, {"metadata": {"annotations": {key: value}}})


async def is_ready(client: KubeClient, name: str) -> bool:
    """Whether the API server still has the Node, and for ready. Raises APIError but for 404."""
    try:
        node = await client.get(Node, name)
    except APIError as error:
        if error.code == 404:
            return False
        raise
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


async def renew_lease(client: KubeClient, name: str, owner_uid: str, at: float) -> None:
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
