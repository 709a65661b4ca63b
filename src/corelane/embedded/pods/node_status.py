"""The Node object as values: labels, capacity, allocatable resources, conditions and facts of the machine."""

import json
import os
import platform
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corelane import __version__
from corelane.kernel import proc
from corelane.kube import keys
from corelane.kube.meta import rfc3339
from corelane.machine.model import Machine
from corelane.node.ledger import NodeState
from corelane.placement.memory_blocks import MEMORY, hugepages
from corelane.quantity import BINARY_SI, of_value
from corelane.runtime.base import Capabilities

SIMULATED: Final = "corelane.io/simulated"
RUNTIME: Final = "corelane.io/runtime"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
_FIXED: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "corelane does not monitor memory pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "corelane does not monitor process ids"),
    ("Ready", "True", "KubeletReady", "the corelane agent is posting ready status"),
)
CONDITIONS: Final = ("DiskPressure", *(members[0] for members in _FIXED))
"""Types of the conditions that the status has."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Name, addresses and runtime of a node. `notice` describes what its runtime cannot do."""

    name: str
    capabilities: Capabilities
    runtime: str
    enforcement: str
    notice: str = ""
    ips: tuple[str, ...] = ()
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether no process runs on the node."""
        return not self.capabilities.on_this_machine

    def all_labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/arch": _architecture(),
            "kubernetes.io/os": "linux",
            **({SIMULATED: "true"} if self.simulated else {}),
            **({RUNTIME: "local-process"} if self.capabilities.plain_processes else {}),
            **self.labels,
        }

    def annotations(self) -> dict[str, str]:
        return {keys.ENFORCEMENT: self.enforcement, keys.NOTICE: self.notice}

    def taints(self) -> list[dict[str, str]]:
        """Return the taint of a simulated node: only pods that tolerate it run there."""
        return [{"key": SIMULATED, "value": "true", "effect": "NoSchedule"}] if self.simulated else []


@dataclass(frozen=True, slots=True)
class LedgerDisk:
    """Why the ledger cannot be written, "" if it can, and since when."""

    fault: str = ""
    since: float = 0.0

    def condition(self, since: float, at: float) -> dict[str, str]:
        """Return the Node's DiskPressure condition; `since` is the start of the agent."""
        if self.fault:
            members = ("DiskPressure", "True", "KubeletHasDiskPressure", self.fault)
        else:
            members = ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the ledger can be written")
        return _condition(*members, max(since, self.since), at)


def own_addresses() -> tuple[str, ...]:
    """Return the address from which this machine reaches others, or loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation; nothing is sent
            return (str(probe.getsockname()[0]),)
        except OSError:
            return ("127.0.0.1",)


def capacity(identity: NodeIdentity, ledger: NodeState) -> dict[str, str]:
    """Return usable CPUs, memory and huge pages of all NUMA nodes, the number of pods, and devices."""
    cpus = {"cpu": str(len(ledger.machine.usable)), "pods": str(identity.pods)}
    devices = {name: str(len(devices)) for name, devices in ledger.config.devices.items()}
    return cpus | _quantities(_memory(ledger.machine)) | devices


def allocatable(identity: NodeIdentity, ledger: NodeState) -> dict[str, str]:
    """Return the capacity without what the memory manager and settings reserve."""
    memory = _memory(ledger.machine)
    if MEMORY in memory:
        memory[MEMORY] = max(0, memory[MEMORY] - ledger.withheld_memory)
    reserved = _reserved_memory(ledger)
    memory = {name: max(0, size - reserved[name]) for name, size in memory.items()}
    return capacity(identity, ledger) | {"cpu": f"{ledger.allocatable}m"} | _quantities(memory)


def memory_of(machine: Machine) -> int:
    """Return the bytes of all NUMA nodes; 0 if the machine's source does not report memory."""
    return sum(node.memory for node in machine.nodes)


def memory_for_pods(ledger: NodeState) -> int:
    """Return the bytes that the memory manager does not reserve; 0 if memory is unknown."""
    return max(0, memory_of(ledger.machine) - _reserved_memory(ledger)[MEMORY])


def allocatable_memory(ledger: NodeState) -> int:
    """Return the bytes that pods may request, without what settings withhold."""
    return max(0, memory_for_pods(ledger) - ledger.withheld_memory)


def _memory(machine: Machine) -> dict[str, int]:
    """Return bytes of memory and huge pages by resource name."""
    sizes = {MEMORY: memory_of(machine)} if memory_of(machine) else {}
    for kib in sorted({kib for node in machine.nodes for kib, pages in node.hugepages.items() if pages}):
        sizes[hugepages(kib)] = sum(node.hugepages.get(kib, 0) for node in machine.nodes) * kib * 1024
    return sizes


def _reserved_memory(ledger: NodeState) -> Counter[str]:
    reserved: Counter[str] = Counter()
    for sizes in ledger.config.memory.reserved.values():
        reserved.update(sizes)
    return reserved


def _quantities(sizes: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{size // 1024}Ki" if name == MEMORY else str(of_value(size, BINARY_SI))
        for name, size in sizes.items()
    }


def node_status(
    identity: NodeIdentity, ledger: NodeState, since: float, at: float, disk: LedgerDisk
) -> dict[str, Any]:
    """Return the Node's status; conditions hold since `since`. A simulated node has no facts of a machine."""
    real = not identity.simulated
    return {
        "capacity": capacity(identity, ledger),
        "allocatable": allocatable(identity, ledger),
        "conditions": [
            disk.condition(since, at),
            *(_condition(*members, since, at) for members in _FIXED),
        ],
        "addresses": [
            *({"type": "InternalIP", "address": ip} for ip in identity.ips),
            {"type": "Hostname", "address": identity.name},
        ],
        "nodeInfo": {
            "architecture": _architecture(),
            "operatingSystem": "linux",
            "kernelVersion": os.uname().release if real else "simulated",
            "osImage": _os_image() if real else "simulated",
            "machineID": _line("/etc/machine-id") if real else "",
            "bootID": proc.boot_id() if real else "",
            "systemUUID": "",
            "containerRuntimeVersion": f"{identity.runtime}://{__version__}",
            "kubeletVersion": f"corelane-v{__version__}",
            "kubeProxyVersion": "",
        },
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


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


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


def raw_allocatable(ledger: NodeState) -> str | None:
    """Return the allocatable CPU before amplification, in Koordinator's form; None if none is amplified."""
    ratio = ledger.config.pools.amplification
    if ledger.config.policy != "pools" or ratio <= 1:
        return None
    return json.dumps({"cpu": f"{ledger.allocatable * ratio.denominator // ratio.numerator}m"})
