"""What an operator says of a node beside its CPUs: memory, devices, gates; options and the kubelet's file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from corelane.app import memory_settings
from corelane.app.settings_file import SettingsError
from corelane.app.state import kubelet_settings
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine, NUMANode
from corelane.node import MemoryOptions, NodeConfig
from corelane.node.options import MemoryPolicy, parse_bool
from corelane.placement.memory import MEMORY, hugepages

__all__ = ["NodeSettings", "applied", "with_memory"]

GATE: Final = "PodLevelResourceManagers"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Empty where nothing was said; what is said wins over the configuration file."""

    memory_policy: str = ""
    reserved_memory: Sequence[str] = ()
    """As the kubelet's `--reserved-memory`: `0:memory=1Gi,hugepages-1Gi=2Gi`."""
    memory: Sequence[str] = ()
    """What NUMA nodes have, in the same form."""
    devices: Sequence[str] = ()
    """`nvidia.com/gpu=gpu0@0,gpu1@0+1,gpu2`: a resource's devices, with the NUMA nodes that each is near."""
    gates: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    """The kubelet's configuration file."""


def with_memory(machine: Machine, said: NodeSettings) -> Machine:
    """The machine with the memory and huge pages that are said of its NUMA nodes. Raises SettingsError."""
    sizes = memory_settings.given(said.memory, "--node-memory")
    _check_nodes("--node-memory", sizes, machine)
    nodes = tuple(_sized(node, sizes[node.id]) if node.id in sizes else node for node in machine.nodes)
    return replace(machine, nodes=nodes)


def _sized(node: NUMANode, sizes: Mapping[str, int]) -> NUMANode:
    pages = dict(node.hugepages)
    for name, size in sizes.items():
        if name != MEMORY:
            kib = _page_kib(name)
            if size % (1024 * kib):
                raise SettingsError(f"--node-memory: {name}={size}: is no whole number of pages")
            pages[kib] = size // (1024 * kib)
    memory = sizes.get(MEMORY, node.memory)
    if memory < sum(1024 * kib * count for kib, count in pages.items()):
        raise SettingsError(f"--node-memory: NUMA node {node.id} has less memory than huge pages")
    return replace(node, memory=memory, hugepages=pages)


def _page_kib(name: str) -> int:
    for shift in range(40):
        if hugepages(1 << shift) == name:
            return 1 << shift
    raise SettingsError(
        f"--node-memory: {name!r} is neither memory nor huge pages of a size such as hugepages-2Mi"
    )


def applied(config: NodeConfig, machine: Machine, said: NodeSettings) -> NodeConfig:
    """A node's settings with these over its own. Raises SettingsError naming option, or file and field."""
    tree = kubelet_settings.tree(said.config) if said.config else {}
    memory = _memory(said, tree, config.memory)
    _check_nodes("--reserved-memory", memory.reserved, machine)
    return replace(
        config,
        memory=memory,
        devices={**config.devices, **_inventory(said.devices)},
        pod_level=_gate(said, tree, config.pod_level),
    )


def _memory(said: NodeSettings, tree: Mapping[str, Any], usual: MemoryOptions) -> MemoryOptions:
    where = str(said.config)
    named = "memoryManagerPolicy" in tree
    policy = said.memory_policy or (memory_settings.policy(where, tree) if named else usual.policy)
    if said.reserved_memory:
        reserved = memory_settings.given(said.reserved_memory)
    else:
        reserved = memory_settings.configured(where, tree.get("reservedMemory")) or usual.reserved
    if said.reserved_memory and policy == "None":
        raise SettingsError("--reserved-memory: memory manager policy None reserves none: use Static")
    return MemoryOptions(cast("MemoryPolicy", policy), reserved if policy == "Static" else {})


def _check_nodes(option: str, of: Iterable[int], machine: Machine) -> None:
    nodes = {node.id for node in machine.nodes}
    if missing := sorted(set(of) - nodes):
        raise SettingsError(
            f"{option}: references a NUMA node {missing[0]} that does not exist on this machine: "
            f"it has {', '.join(map(str, sorted(nodes)))}"
        )


def _inventory(texts: Iterable[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        resource, equals, listed = text.partition("=")
        if not equals or not resource:
            raise SettingsError(f"--node-device: {text!r} is not NAME=ID@NODE,…: {_DEVICE_HELP}")
        for one in filter(None, listed.split(",")):
            name, near = _device(one)
            if name in found.setdefault(resource, {}):
                raise SettingsError(f"--node-device: {resource} has two devices {name}")
            found[resource][name] = near
        found.setdefault(resource, {})
    return found


_DEVICE_HELP = "such as nvidia.com/gpu=gpu0@0,gpu1@1 or example.com/nic=eth0@0+1"


def _device(text: str) -> tuple[str, int]:
    """A device's id, and the NUMA nodes (a mask of ids) that it is near."""
    match = re.fullmatch(r"([^@]+)(?:@([0-9]{1,3}(?:\+[0-9]{1,3})*))?", text, re.ASCII)
    if not match:
        raise SettingsError(f"--node-device: {text!r} is not ID or ID@NODE: {_DEVICE_HELP}")
    return match[1], CPUSet(map(int, match[2].split("+"))).mask if match[2] else 0


def _gate(said: NodeSettings, tree: Mapping[str, Any], usual: bool) -> bool:
    """Whether PodLevelResourceManagers is on; other gates are nothing to corelane."""
    for name in said.gates:
        if name != GATE:
            raise SettingsError(f"--feature-gate: {name}: only {GATE} makes a difference here: leave it out")
    if GATE in said.gates:
        return parse_bool(GATE, said.gates[GATE])
    configured = tree.get("featureGates") or {}
    if not isinstance(configured, dict) or not isinstance(configured.get(GATE, False), bool):
        raise SettingsError(f"{said.config}: featureGates: {GATE}: is not true or false")
    return bool(configured.get(GATE, usual))
