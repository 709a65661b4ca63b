"""`--node-config FILE`: the settings of one node as YAML, each checked before anything is changed.

policy: pools                # none, static or pools
allocator: optimal           # optimal or koordinator
reservedCPUs: "0,16"         # or reservedCPUCount: 2
zones: [node, socket, l3]    # also core: zones of its NodeResourceTopology
pools: {guaranteedDefault: LSR, beMinimum: 1, …}
static: {cpuManagerPolicyOptions: {full-pcpus-only: "true"}, topologyManagerPolicy: restricted, …}
memoryManagerPolicy: Static  # with reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}], as the kubelet
devices: {example.com/nic: {0: 2, 1: [eth2, eth3]}}   # by NUMA node: how many, or their names
kubeletState: /var/lib/kubelet/cpu_manager_state      # a kubelet's pods keep their CPUs until they end
reconcileSeconds: 10         # time between two comparisons of all containers with the kernel
runtime: {endpoint: "unix:///run/containerd/containerd.sock", nri: /var/run/nri/nri.sock}   # beside a kubelet
kubelet: {address: "https://127.0.0.1:10250", caFile: …, tokenFile: …}                      # beside a kubelet
simulated: {devices: …}      # simulated nodes' own reservedCPUs, memory and devices
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType, field

from corelane import input_files, names
from corelane.cpuset import CPUSet
from corelane.node import MemoryOptions, NodeConfigError, StaticOptions, TopologyOptions
from corelane.node.config import AllocatorName, IsolatedCPUs, Level, NodeConfig, Policy, PoolOptions
from corelane.node.manager_options import MemoryPolicy
from corelane.settings import Bytes, Count, SettingsError, given, invalid, parse
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PodQOS

# Forms that the kubelet's configuration file has, too.

Option = Annotated[str | int | bool, Meta(description='a string such as "true"')]
"""A kubelet's options are strings; YAML's numbers and booleans stand for theirs."""


class NUMANodeReservation(Struct, rename="camel"):
    """Memory of a NUMA node that pods never get, as in the kubelet's configuration file."""

    limits: dict[str, Bytes]
    numa_node: Count = 0


ReservedMemory = Annotated[
    list[NUMANodeReservation], Meta(description="a list such as [{numaNode: 0, limits: {memory: 1Gi}}]")
]


def option_texts(options: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return a kubelet's options as the strings that it parses."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }


def reserved_memory(listed: Iterable[NUMANodeReservation]) -> dict[int, dict[str, int]]:
    """Return bytes by NUMA node and resource; of a repeated one the last counts, as for the kubelet."""
    reserved: dict[int, dict[str, int]] = {}
    for item in listed:
        # Plain integers: a NodeConfig is encoded where the file's types are unknown.
        sizes = {resource: int(size) for resource, size in item.limits.items()}
        reserved.setdefault(item.numa_node, {}).update(sizes)
    return reserved


CONTAINERD: Final = "unix:///run/containerd/containerd.sock"
NRI_SOCKET: Final = Path("/var/run/nri/nri.sock")
STATE_FILE: Final = Path("/var/lib/kubelet/cpu_manager_state")
POD_RESOURCES: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_NRI: Final = f"an absolute path such as {NRI_SOCKET}, or off"


@dataclass(frozen=True, slots=True)
class RuntimeSockets:
    """Sockets of the container runtime: its CRI endpoint, and that of NRI, None where NRI is not used."""

    endpoint: str = CONTAINERD
    nri: Path | None = NRI_SOCKET


@dataclass(frozen=True, slots=True)
class KubeletConnection:
    """How to reach the kubelet, and its files; "" and None are the defaults of the agent's pod or host."""

    address: str = ""
    server_name: str = ""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    insecure: bool = False
    state_file: Path | None = None
    pod_resources: Path | None = None


DEFAULT_SOCKETS: Final = RuntimeSockets()
DEFAULT_KUBELET: Final = KubeletConnection()

# The file's form.

_Path = Annotated[str, Meta(pattern="^/", description="an absolute path")]
_ADDRESS: Final = "a URL such as https://127.0.0.1:10250"
_KUBELET_FIELDS: Final = {
    "server_name": "serverName",
    "ca_file": "caFile",
    "certificate_file": "certificateFile",
    "key_file": "keyFile",
    "token_file": "tokenFile",
    "insecure": "insecureSkipTLSVerify",
    "state_file": "stateFile",
    "pod_resources": "podResources",
}


class RuntimeForm(Struct, kw_only=True, forbid_unknown_fields=True):
    """`runtime` as the file has it; YAML reads a bare `off` as false."""

    endpoint: (
        Annotated[str, Meta(pattern="^(unix://)?/", description=f"a socket such as {CONTAINERD}")] | UnsetType
    ) = UNSET
    nri: Annotated[str | bool, Meta(description=_NRI)] | UnsetType = UNSET


class KubeletForm(Struct, kw_only=True, forbid_unknown_fields=True, rename=_KUBELET_FIELDS):
    """`kubelet` as the file has it."""

    address: Annotated[str, Meta(pattern=r"^https://[^/]+/?$", description=_ADDRESS)] | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    ca_file: _Path | UnsetType = UNSET
    certificate_file: _Path | UnsetType = UNSET
    key_file: _Path | UnsetType = UNSET
    token_file: _Path | UnsetType = UNSET
    insecure: bool | UnsetType = UNSET
    state_file: _Path | UnsetType = UNSET
    pod_resources: _Path | UnsetType = UNSET


def runtime_sockets(form: RuntimeForm) -> RuntimeSockets:
    """Return the sockets of a file. Raises SettingsError."""
    values = given(form)
    if "nri" in values:
        values["nri"] = nri_socket("runtime.nri", values["nri"])
    return RuntimeSockets(**values)


def nri_socket(field: str, value: str | bool) -> Path | None:
    """Return the path of an NRI socket, None for "off". Raises SettingsError."""
    if value in (False, "off"):
        return None
    if not isinstance(value, str) or not value.startswith("/"):
        raise invalid(field, value, _NRI)
    return Path(value)


def _is_address(url: str) -> bool:
    """Whether a URL has a host, perhaps a port, and nothing else."""
    try:
        parts = urlsplit(url)
        plain = not (parts.username or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        return False
    return plain and re.fullmatch(r"[\w.-]+|[0-9a-fA-F:.]+(%\w+)?", parts.hostname or "") is not None


def kubelet_connection(form: KubeletForm) -> KubeletConnection:
    """Return the connection of a file. Raises SettingsError."""
    values = given(form)
    if "address" in values and not _is_address(values["address"]):
        raise invalid("kubelet.address", values["address"], _ADDRESS)
    pair = [_KUBELET_FIELDS[name] for name in ("certificate_file", "key_file") if name in values]
    if len(pair) == 1:
        raise SettingsError(f"kubelet.{pair[0]} is set alone; set certificateFile and keyFile, or neither")
    texts = ("address", "server_name", "insecure")
    converted: dict[str, Any] = {k: v if k in texts else Path(v) for k, v in values.items()}
    return KubeletConnection(**converted)


RECONCILE_SECONDS: Final = 10.0


class NodeFileError(SettingsError):
    """A node's settings cannot be read: the file, the field, its value, and what is allowed."""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file's settings; those that it does not have are defaults."""

    config: NodeConfig
    """Of this machine's node."""
    simulated: NodeConfig
    """Of simulated nodes: reserved CPUs, memory and devices, which they do not share with this machine."""
    kubelet_state: Path | None = None
    """The `cpu_manager_state` of a kubelet whose pods keep their CPUs."""
    reconcile_seconds: float = RECONCILE_SECONDS
    """Seconds between two comparisons of all containers with the kernel."""
    runtime: RuntimeSockets = DEFAULT_SOCKETS
    kubelet: KubeletConnection = DEFAULT_KUBELET


def load(path: Path) -> NodeConfig:
    """Return the settings of this machine's node in a file. Raises NodeFileError."""
    return read(path).config


def read(path: Path) -> NodeFile:
    """Return everything in a file. Raises NodeFileError."""
    try:
        file = parse(input_files.read(path, regular=True), _Settings)
        values = given(file)
        if "reserved" in values and "reserved_count" in values:
            raise SettingsError("reservedCPUs and reservedCPUCount are both set; set one of them")
        config = NodeConfig(
            policy=file.policy,
            pools=_pool_options(file.pools, {} if file.allocator is UNSET else {"allocator": file.allocator}),
            reserved_count=values.get("reserved_count"),
            pod_level=file.feature_gates.pod_level,
        )
        if file.zones is not UNSET:
            # Without NUMA nodes, readers of the topology would get neither memory nor distances.
            config = replace(config, zones=frozenset({"node", *file.zones}))
        if file.static is not UNSET:
            static = file.static
            try:
                options = StaticOptions.parse(option_texts(static.cpu_manager_policy_options))
                numa = TopologyOptions.parse(
                    static.topology_manager_policy,
                    static.topology_manager_scope,
                    option_texts(static.topology_manager_policy_options),
                )
            except NodeConfigError as error:  # with upstream's text
                raise SettingsError(f"static: {error}") from None
            config = replace(config, options=options, numa=numa)
        kubelet = kubelet_connection(file.kubelet)
        if "kubelet_state" in values and kubelet.state_file:
            raise SettingsError("kubeletState and kubelet.stateFile are both set; set one of them")
        return NodeFile(
            replace(config, **_own(file)),
            NodeConfig(**_own(file.simulated, "simulated.")),
            Path(values["kubelet_state"]) if "kubelet_state" in values else kubelet.state_file,
            file.reconcile_seconds,
            runtime_sockets(file.runtime),
            kubelet,
        )
    except SettingsError as error:
        raise NodeFileError(f"{path}: {error}") from None
    except OSError as error:
        raise NodeFileError(f"{path}: {error.strerror}; give a file of node settings") from None


def explain(error: NodeConfigError) -> str:
    """Describe a setting that this machine cannot satisfy, by its name in the file."""
    if error.field in _POOL_FIELDS:
        return f"pools.{_POOL_FIELDS[error.field]}: {error.detail}"
    return f"{_FIELDS[error.field]}: {error.detail}" if error.field in _FIELDS else str(error)


# The file's form. Members have the names of `NodeConfig` and `PoolOptions`, the file's names are below.

_FIELDS: Final = {
    "reserved": "reservedCPUs",
    "reserved_count": "reservedCPUCount",
    "memory_policy": "memoryManagerPolicy",
    "reserved_memory": "reservedMemory",
    "feature_gates": "featureGates",
    "kubelet_state": "kubeletState",
    "reconcile_seconds": "reconcileSeconds",
}
_POOL_FIELDS: Final = {
    "guaranteed_default": "guaranteedDefault",
    "strict_requests": "strictRequests",
    "be_minimum": "beMinimum",
    "isolated_cpus": "isolatedCPUs",
    "bind": "bindPolicy",
    "node_bind": "nodeBindPolicy",
    "strategy": "numaStrategy",
    "numa": "numaPolicy",
    "as_proposed": "distributeAsProposed",
    "withheld": "withheldCPUs",
    "system": "systemQoSCPUs",
    "system_exclusive": "systemQoSExclusive",
    "profile": "demandProfile",
}
_Positive = Annotated[int, Meta(ge=1, description="an integer of 1 or more")]
_Sizes = Annotated[
    tuple[_Positive, ...], Meta(min_length=1, description="a list of numbers of CPUs such as [2, 4, 8, 16]")
]
_FieldPath = Annotated[str, Meta(pattern="^/", description=f"an absolute path such as {STATE_FILE}")]
_Seconds = Annotated[float, Meta(ge=1, le=3600, description="a number of seconds from 1 to 3600")]
_NUMANode = Annotated[int, Meta(ge=0, le=1023, description="a NUMA node from 0 to 1023")]
_DevicesOfNode = Annotated[
    Annotated[int, Meta(ge=0, le=4096)] | list[Annotated[str, Meta(min_length=1)]],
    Meta(description="a number of devices up to 4096, or names of devices such as [eth0, eth1]"),
]
_DevicesByNode = Annotated[
    dict[_NUMANode, _DevicesOfNode],
    Meta(description="NUMA nodes with the number or names of their devices, such as {0: 2, 1: 2}"),
]
_Devices = Annotated[
    dict[str, _DevicesByNode],
    Meta(min_length=1, description="a mapping such as {example.com/nic: {0: 2, 1: 2}}"),
]


class _Strict(Struct, kw_only=True, forbid_unknown_fields=True):
    """A mapping in which an unknown field is an error."""


class _OwnSettings(_Strict, rename=_FIELDS):
    """Settings of one machine, which simulated nodes do not share."""

    reserved: CPUSet | UnsetType = UNSET
    memory_policy: MemoryPolicy = "None"
    reserved_memory: ReservedMemory | UnsetType = UNSET
    devices: _Devices | UnsetType = UNSET


class _Pools(_Strict, rename=_POOL_FIELDS):
    guaranteed_default: Literal["LSR", "LS"] | UnsetType = UNSET
    strict_requests: bool | UnsetType = UNSET
    be_minimum: Count | UnsetType = UNSET
    isolated_cpus: IsolatedCPUs | UnsetType = UNSET
    bind: Literal["None", "FullPCPUs", "SpreadByPCPUs"] | UnsetType | None = UNSET
    node_bind: Literal["None", "FullPCPUsOnly", "SpreadByPCPUs"] | UnsetType | None = UNSET
    strategy: Literal["None", "MostAllocated", "LeastAllocated", "DistributeEvenly"] | UnsetType | None = (
        UNSET
    )
    numa: Literal["None", "BestEffort", "Restricted", "SingleNUMANode"] | UnsetType | None = UNSET
    as_proposed: bool | UnsetType = UNSET
    withheld: CPUSet | UnsetType = UNSET
    system: CPUSet | UnsetType = UNSET
    system_exclusive: bool | UnsetType = UNSET
    profile: _Sizes | UnsetType = UNSET


class _Static(_Strict, rename="camel"):
    """The kubelet's names and values."""

    cpu_manager_policy_options: dict[str, Option] = {}
    topology_manager_policy: str = "best-effort"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: dict[str, Option] = {}


class _FeatureGates(_Strict, rename={"pod_level": "PodLevelResourceManagers"}):
    """The one of the kubelet's feature gates that has an effect here."""

    pod_level: bool = False


class _Settings(_OwnSettings, rename=_FIELDS):
    policy: Policy = "pools"
    allocator: AllocatorName | UnsetType = UNSET
    reserved_count: _Positive | UnsetType = UNSET
    zones: list[Level] | UnsetType = UNSET
    pools: _Pools = field(default_factory=_Pools)
    static: _Static | UnsetType = UNSET
    feature_gates: _FeatureGates = field(default_factory=_FeatureGates)
    kubelet_state: _FieldPath | UnsetType = UNSET
    reconcile_seconds: _Seconds = RECONCILE_SECONDS
    runtime: RuntimeForm = field(default_factory=RuntimeForm)
    kubelet: KubeletForm = field(default_factory=KubeletForm)
    simulated: _OwnSettings = field(default_factory=_OwnSettings)


# From the file's form to the node's settings.


def _pool_options(pools: _Pools, more: Mapping[str, Any]) -> PoolOptions:
    values = given(pools)
    kinds: dict[str, Callable[[str], Any]] = {
        "guaranteed_default": PodQOS,
        "bind": BindPolicy,
        "node_bind": lambda word: BindPolicy(word.removesuffix("Only")),
        "strategy": NUMAStrategy,
        "numa": NUMAPolicy,
    }
    for name in kinds.keys() & values.keys():
        word = values[name]
        values[name] = kinds[name](word) if word not in (None, "None") else None
    return PoolOptions(**values, **more)


def _own(settings: _OwnSettings, within: str = "") -> dict[str, Any]:
    """Reserved CPUs, memory and devices as members of a `NodeConfig`."""
    values = given(settings)
    reserved = reserved_memory(values.get("reserved_memory", []))
    if reserved and settings.memory_policy == "None":
        raise SettingsError(
            f"{within}reservedMemory: memory manager policy None reserves no memory; "
            f"set {within}memoryManagerPolicy: Static, or remove the field"
        )
    own: dict[str, Any] = {"memory": MemoryOptions(settings.memory_policy, reserved)}
    if "reserved" in values:
        own["reserved"] = values["reserved"]
    if "devices" in values:
        own["devices"] = _inventory(f"{within}devices", values["devices"])
    return own


def _inventory(
    where: str, resources: Mapping[str, Mapping[int, int | list[str]]]
) -> dict[str, dict[str, int]]:
    """Return the NUMA nodes (a mask of ids) that each device of each resource is near."""
    inventory: dict[str, dict[str, int]] = {}
    for resource, nodes in resources.items():
        domain, _, name = resource.rpartition("/")
        if not domain or names.qualified_name(resource) or domain.endswith("kubernetes.io"):
            raise invalid(f"{where}: key", resource, "a resource such as example.com/nic")
        devices = inventory.setdefault(resource, {})
        for node, listed in nodes.items():
            counted = listed if isinstance(listed, list) else [f"{name}-{node}-{i}" for i in range(listed)]
            for device in counted:
                if device in devices:
                    raise SettingsError(f"{where}.{resource}: device {device!r} is given twice; give it once")
                devices[device] = 1 << node
    return inventory


def host_or_given(given: str | None, source: str = "--node-name") -> str:
    """Return the name given by `source`, else the host's. Raises SettingsError for an invalid one."""
    name = (platform.node().lower() or "localhost") if given is None else given
    if names.dns_subdomain(name) or names.label_value(name):
        where = "the host's name" if given is None else source
        raise SettingsError(
            f"{where} {name!r} is not a valid node name; give --node-name up to 63 lower case letters, "
            "digits, '-' and '.', such as node-1.lab"
        )
    return name
