"""A kubelet's settings, from options and from its configuration file, as a node's settings.

Options override the file. Memory and devices of a node, which a kubelet finds by itself, are options too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from corelane import node
from corelane.app import machines
from corelane.app.nodefile import Option, ReservedMemory, option_texts, reserved_memory
from corelane.app.state import files
from corelane.cpuset import CPUSet
from corelane.machine import Machine
from corelane.machine.model import NUMANode
from corelane.node import MemoryOptions
from corelane.node.config import Inventory, NodeConfig, Policy
from corelane.node.kubelet.validation import Reserved
from corelane.node.manager_options import MemoryPolicy, parse_bool
from corelane.placement.kubelet.picker import Version
from corelane.placement.memory_blocks import MEMORY, hugepages
from corelane.settings import SettingsError, camel, convert, cpu_amount, cpu_list, load_yaml, size

_OLDEST, _NEWEST = 18, 38
_GATE: Final = "PodLevelResourceManagers"
_NO_RESERVATION: Final = (
    "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
)


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """A kubelet's settings; "", empty and None where none is given."""

    policy: str = ""
    reserved_cpus: str = ""
    """`reservedSystemCPUs`, a CPU list; overrides `reserved`."""
    reserved: str = ""
    """`kubeReserved.cpu` + `systemReserved.cpu`, a quantity such as 2 or 1500m."""
    options: Mapping[str, str] = field(default_factory=dict)
    topology_policy: str = ""
    topology_scope: str = ""
    topology_options: Mapping[str, str] = field(default_factory=dict)
    memory_policy: str = ""
    reserved_memory: Reserved | None = None
    reserved_memory_source: str = "--reserved-memory"
    pod_level: bool | None = None
    """Feature gate PodLevelResourceManagers."""
    version: str = ""
    """The kubelet's release, such as 1.36 or v1.33.4."""
    source: str = ""
    """The configuration file."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Fields of the file that a KubeletConfiguration does not have, and the ones that may be meant."""
    node_memory: MemoryReservation | None = None
    """Memory reserved outside of pods, as the file has it."""

    def reserved_node_memory(self, machine: Machine) -> int | None:
        """Bytes that Node Allocatable leaves out: for kubelet and system, and the hard eviction threshold."""
        if self.node_memory is None:
            return None
        capacity = sum(node.memory for node in machine.nodes)
        try:
            return self.node_memory.reserved + self.node_memory.evicted_below(capacity)
        except SettingsError as error:
            raise SettingsError(f"{self.source}: {error}") from None


@dataclass(frozen=True, slots=True)
class MemoryReservation:
    """kubeReserved and systemReserved memory together, in bytes, and `evictionHard` memory.available."""

    reserved: int
    eviction: str

    def evicted_below(self, capacity: int) -> int:
        """The hard eviction threshold in bytes: a size, or a share of the machine's memory such as 5%."""
        where = "evictionHard: memory.available"
        if not self.eviction.endswith("%"):
            return size(where, self.eviction)
        try:
            return int(capacity * (float(self.eviction[:-1]) / 100))
        except (ValueError, OverflowError):
            raise SettingsError(
                f"{where}: {self.eviction!r} is neither a size nor a share such as 5%"
            ) from None


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Memory and devices of a node; empty where the machine's own count."""

    memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """NUMA node id to resource (`memory`, `hugepages-2Mi`) to bytes."""
    devices: Inventory = field(default_factory=dict)


def hardware(source: str | None) -> Machine:
    """Return the machine as its kubelet sees it: every online CPU, whatever this process may use."""
    machine = machines.load(source)
    return replace(machine, allowed=machine.online)


def release(text: str) -> int:
    """Return the minor number of a Kubernetes release: 36 for "v1.36.2". Raises SettingsError."""
    match = re.fullmatch(r"v?1\.([0-9]{1,3})(?:[.+-].*)?", text, re.ASCII)
    if not match or not _OLDEST <= int(match[1]) <= _NEWEST:
        raise SettingsError(
            f"--kubernetes-version: {text!r} is not a supported release: "
            f"use 1.{_OLDEST} to 1.{_NEWEST}, such as 1.36"
        )
    return int(match[1])


# The configuration file.


_FIELD_NAMES: Final = """
    address allowedUnsafeSysctls apiVersion authentication authorization cgroupDriver cgroupRoot
    cgroupsPerQOS clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles
    containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint
    contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions
    cpuManagerReconcilePeriod crashLoopBackOff enableContentionProfiling enableControllerAttachDetach
    enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer
    enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS
    evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod
    evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates fileCheckFrequency hairpinMode
    healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent
    imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy imageServiceEndpoint
    iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kind kubeAPIBurst kubeAPIQPS kubeReserved
    kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains
    maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy memoryReservationPolicy memorySwap
    memoryThrottlingFactor mergeDefaultEvictionSettings nodeLeaseDurationSeconds nodeStatusMaxImages
    nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit
    podsPerCore port preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved
    readOnlyPort registerNode registerWithTaints registryBurst registryPullQPS reservedMemory
    reservedSystemCPUs resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault
    serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod
    shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath
    staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
    systemReserved systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion
    tlsPrivateKeyFile topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing
    userNamespaces volumePluginDir volumeStatsAggPeriod
"""
FIELDS: Final = frozenset(_FIELD_NAMES.split())
"""The fields of a KubeletConfiguration v1beta1 (1.36), and runOnce, which older ones have."""


class _Reservation(Struct):
    cpu: str | int | None = None
    memory: str | int | None = None


class _Gates(Struct, rename={"pod_level": _GATE}):
    pod_level: bool | None = None


class _Configuration(Struct, rename=camel):
    """The fields of a KubeletConfiguration that have an effect here."""

    kind: Literal["KubeletConfiguration"] = "KubeletConfiguration"
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, Option] | None = None
    reserved_system_cpus: str | int | None = None
    kube_reserved: _Reservation | None = None
    system_reserved: _Reservation | None = None
    eviction_hard: dict[str, str | int] | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, Option] | None = None
    memory_manager_policy: (
        Annotated[Literal["", "None", "Static", "BestEffort"], Meta(description="None, Static or BestEffort")]
        | UnsetType
        | None
    ) = UNSET
    reserved_memory: ReservedMemory | None = None
    feature_gates: _Gates | None = None


def from_file(path: Path, options: KubeletOptions) -> KubeletOptions:
    """Complete options from a kubelet's configuration file, or from the answer of /configz.

    Raises SettingsError naming file and field.
    """
    try:
        tree = load_yaml(files.read_stream(path))
        tree = tree.get("kubeletconfig", tree) if isinstance(tree, dict) else tree
        if not isinstance(tree, dict):
            raise SettingsError(f"is {type(tree).__name__}, not a KubeletConfiguration object")
        file = convert(tree, _Configuration)
        milli = memory = 0
        for name, part in (("kubeReserved", file.kube_reserved), ("systemReserved", file.system_reserved)):
            if part and part.cpu not in (None, ""):
                milli += cpu_amount(f"{name}.cpu", str(part.cpu))
            if part and part.memory not in (None, ""):
                memory += size(f"{name}.memory", str(part.memory))
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    memory_policy = file.memory_manager_policy
    if options.reserved_memory is None and file.reserved_memory is not None:
        options = replace(
            options,
            reserved_memory=reserved_memory(file.reserved_memory),
            reserved_memory_source=f"{path}: reservedMemory",
        )
    of_file = "" if options.reserved or file.reserved_system_cpus is None else str(file.reserved_system_cpus)
    gate = file.feature_gates.pod_level if file.feature_gates else None
    # A kubelet without `evictionHard` evicts below 100Mi.
    eviction = (file.eviction_hard or {"memory.available": "100Mi"}).get("memory.available", "0")
    similar = {name.casefold(): name for name in sorted(FIELDS)}
    unknown = {
        name: similar.get("".join(get_close_matches(name.casefold(), similar, 1)), "")
        for name in map(str, tree)
        if name not in FIELDS
    }
    return replace(
        options,
        policy=options.policy or file.cpu_manager_policy or "none",
        reserved_cpus=options.reserved_cpus or of_file,
        reserved=options.reserved or (f"{milli}m" if milli else ""),
        options={**option_texts(file.cpu_manager_policy_options or {}), **options.options},
        topology_policy=options.topology_policy or file.topology_manager_policy or "",
        topology_scope=options.topology_scope or file.topology_manager_scope or "",
        topology_options={
            **option_texts(file.topology_manager_policy_options or {}),
            **options.topology_options,
        },
        memory_policy=options.memory_policy or ("" if memory_policy is UNSET else memory_policy or "None"),
        pod_level=gate if options.pod_level is None else options.pod_level,
        source=str(path),
        unknown=unknown,
        node_memory=MemoryReservation(memory, str(eviction)),
    )


# Options.


def memory_by_node(option: str, texts: Iterable[str]) -> dict[int, dict[str, int]]:
    """Parse options such as `0:memory=1Gi,hugepages-1Gi=2Gi`: bytes by NUMA node and resource.

    Of a repeated resource the last counts, as for the kubelet. Raises SettingsError.
    """
    memory: dict[int, dict[str, int]] = {}
    for text in texts:
        match = _NODE_MEMORY.fullmatch(text)
        if not match:
            raise SettingsError(
                f"{option}: {text!r} is not NODE:RESOURCE=SIZE,…, such as 0:memory=1Gi,hugepages-1Gi=2Gi"
            )
        pairs = (pair.split("=") for pair in match["limits"].split(","))
        sizes = {name: size(f"{option}: {name}", amount) for name, amount in pairs}
        memory.setdefault(int(match["node"]), {}).update(sizes)
    return memory


_NODE_MEMORY = re.compile(r"(?P<node>[0-9]{1,9}):(?P<limits>[^=,]+=[^=,]+(?:,[^=,]+=[^=,]+)*)", re.ASCII)


def pod_level(gates: Mapping[str, str]) -> bool | None:
    """Return the value of gate PodLevelResourceManagers, the only one with an effect here. SettingsError."""
    for name in gates:
        if name != _GATE:
            raise SettingsError(f"--feature-gate: {name} has no effect here, only {_GATE} has; remove it")
    return parse_bool(_GATE, gates[_GATE]) if gates else None


def node_resources(memory: Iterable[str], devices: Iterable[str]) -> NodeResources:
    """Parse --node-memory, and --node-device such as `nvidia.com/gpu=gpu0@0,gpu1@0+1,gpu2`. SettingsError."""
    inventory: dict[str, dict[str, int]] = {}
    for text in devices:
        resource, equals, listed = text.partition("=")
        if not equals or not resource:
            raise SettingsError(f"--node-device: {text!r} is not NAME=ID@NODE,…, {_DEVICE_HELP}")
        named = inventory.setdefault(resource, {})
        for item in filter(None, listed.split(",")):
            match = re.fullmatch(r"([^@]+)(?:@([0-9]{1,3}(?:\+[0-9]{1,3})*))?", item, re.ASCII)
            if not match:
                raise SettingsError(f"--node-device: {item!r} is not ID or ID@NODE, {_DEVICE_HELP}")
            if match[1] in named:
                raise SettingsError(
                    f"--node-device: {resource}: device {match[1]} is given twice; give it once"
                )
            named[match[1]] = CPUSet(map(int, match[2].split("+"))).mask if match[2] else 0
    return NodeResources(memory_by_node("--node-memory", memory), inventory)


_DEVICE_HELP: Final = "such as nvidia.com/gpu=gpu0@0,gpu1@1 or example.com/nic=eth0@0+1"


# From a kubelet's settings to a node's.


def config(options: KubeletOptions, *, exact: bool = True) -> NodeConfig:
    """Return CPU settings; a static policy that answers as the kubelet (`exact`) requires a reservation."""
    version = cast("Version", f"1.{max(release(options.version) if options.version else 36, 36)}")
    policy = options.policy or "static"
    if policy == "none" and options.options:
        pairs = " ".join(f"{name}={value}" for name, value in sorted(options.options.items()))
        raise SettingsError(f"--option: {pairs}: policy none has no options; remove them")
    reserved = (
        cpu_list(_where(options, "--reserved-cpus", "reservedSystemCPUs"), options.reserved_cpus) or None
    )
    count = None
    if options.reserved and not options.reserved_cpus:
        where = _where(options, "--reserved", "kubeReserved.cpu and systemReserved.cpu")
        milli = cpu_amount(where, options.reserved)
        if milli <= 0:
            raise SettingsError(f"{where}: {options.reserved}: {_NO_RESERVATION}")
        count = -(-milli // 1000)
    if policy == "static" and exact and reserved is None and count is None:
        raise SettingsError(_unreserved(options))
    static = node.StaticOptions.parse(options.options, version)
    numa = node.TopologyOptions.parse(
        options.topology_policy or "none", options.topology_scope or "container", options.topology_options
    )
    if "max-allowable-numa-nodes" not in options.topology_options and not exact:
        numa = replace(numa, max_allowable_numa_nodes=None)
    return NodeConfig(cast("Policy", policy), reserved, count, static, numa, exact=exact)


def _unreserved(options: KubeletOptions) -> str:
    """Return the error for a static policy without a reservation of CPUs, naming file and fields."""
    if not options.source:
        return (
            f"--reserved-cpus or --reserved: {_NO_RESERVATION}; "
            "give the values of this kubelet, or --kubelet-config FILE"
        )
    unknown = "".join(
        f"; {name} is not a field of a KubeletConfiguration" + (f", {meant} is" if meant else "")
        for name, meant in options.unknown.items()
    )
    return (
        f"{options.source}: no CPU is reserved: {_NO_RESERVATION}; "
        f"set reservedSystemCPUs, kubeReserved.cpu or systemReserved.cpu in it{unknown}"
    )


def _where(options: KubeletOptions, option: str, name: str) -> str:
    return f"{options.source}: {name}" if options.source else option


def with_memory(machine: Machine, resources: NodeResources) -> Machine:
    """Return the machine with the memory and huge pages given for its NUMA nodes. Raises SettingsError."""
    sizes = resources.memory
    check_nodes("--node-memory", sizes, machine)
    return replace(machine, nodes=tuple(_sized(node, sizes.get(node.id, {})) for node in machine.nodes))


def _sized(numa_node: NUMANode, sizes: Mapping[str, int]) -> NUMANode:
    pages = dict(numa_node.hugepages)
    for name, amount in sizes.items():
        if name == MEMORY:
            continue
        kib = next((1 << shift for shift in range(40) if hugepages(1 << shift) == name), 0)
        if not kib:
            raise SettingsError(
                f"--node-memory: {name!r} is invalid: use memory, or huge pages such as hugepages-2Mi"
            )
        if amount % (1024 * kib):
            raise SettingsError(f"--node-memory: {name}={amount} is not a multiple of the page size")
        pages[kib] = amount // (1024 * kib)
    memory = sizes.get(MEMORY, numa_node.memory)
    if sizes and memory < sum(1024 * kib * count for kib, count in pages.items()):
        raise SettingsError(f"--node-memory: NUMA node {numa_node.id} has less memory than huge pages")
    return replace(numa_node, memory=memory, hugepages=pages)


def with_resources(
    config: NodeConfig, machine: Machine, options: KubeletOptions, resources: NodeResources
) -> NodeConfig:
    """Return a node's settings, overridden by memory options, gate and devices. Raises SettingsError."""
    policy = options.memory_policy or config.memory.policy
    reserved = options.reserved_memory or config.memory.reserved
    if options.reserved_memory and policy == "None" and options.reserved_memory_source.startswith("--"):
        raise SettingsError("--reserved-memory: memory manager policy None reserves no memory; use Static")
    memory = MemoryOptions(cast("MemoryPolicy", policy), reserved if policy == "Static" else {})
    check_nodes(options.reserved_memory_source, memory.reserved, machine)
    return replace(
        config,
        memory=memory,
        devices={**config.devices, **resources.devices},
        pod_level=config.pod_level if options.pod_level is None else options.pod_level,
    )


def check_nodes(where: str, nodes: Iterable[int], machine: Machine) -> None:
    """Raise SettingsError for a NUMA node that the machine does not have."""
    existing = sorted(one.id for one in machine.nodes)
    if missing := sorted(set(nodes) - set(existing)):
        listed = ", ".join(map(str, existing))
        raise SettingsError(f"{where}: NUMA node {missing[0]} does not exist on this machine: use {listed}")
