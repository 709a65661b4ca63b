"""`--node-config FILE`: the settings of one node as YAML, each checked before anything is touched.

policy: pools                # none, static or pools
allocator: optimal           # optimal or koordinator
reservedCPUs: "0,16"         # or reservedCPUCount: 2
zones: [node, socket, l3]    # also core: what its NodeResourceTopology lists
pools: {guaranteedDefault: LSR, beMinimum: 1, …}
static: {cpuManagerPolicyOptions: {full-pcpus-only: "true"}, topologyManagerPolicy: restricted, …}
memoryManagerPolicy: Static  # with reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}], as the kubelet
devices: {example.com/nic: {0: 2, 1: [eth2, eth3]}}   # by NUMA node how many, or which
kubeletState: /var/lib/kubelet/cpu_manager_state      # whose CPUs are held until its pods end
simulated: {devices: …}      # what simulated nodes have of what is a machine's own
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import yaml

from corelane.apiserver.validation import formats
from corelane.app import memory_settings
from corelane.app.settings_file import SettingsError
from corelane.cpuset import CPUSet, CPUSetError
from corelane.node import (
    MemoryOptions,
    NodeConfig,
    NodeConfigError,
    PoolOptions,
    StaticOptions,
    TopologyOptions,
)
from corelane.node.config import Inventory, Level, Policy
from corelane.node.options import MemoryPolicy
from corelane.node.pools.options import AllocatorName, IsolatedCPUs
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PodQOS

__all__ = ["NodeFile", "NodeFileError", "explain", "load", "read"]


GATE: Final = "PodLevelResourceManagers"
MOST_DEVICES: Final = 4096
"""Of one resource near one NUMA node."""
MOST_NODES: Final = 1023
"""Linux has no NUMA node beyond it."""


class NodeFileError(ValueError):
    """A node's settings cannot be read: the file, the field, its value, and what is allowed."""


Reader: TypeAlias = Callable[[str, Any], Any]
"""From a field's name and its YAML value to what it means. Raises NodeFileError without the file's name."""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """What a file says; the settings that it does not name are as they are by default."""

    config: NodeConfig
    """Those of this machine's node."""
    simulated: NodeConfig
    """Those of simulated nodes: the same, but for what is a machine's own."""
    kubelet_state: Path | None = None
    """The `cpu_manager_state` of a kubelet whose pods keep their CPUs."""


def load(path: Path) -> NodeConfig:
    """The settings of this machine's node in a file. Raises NodeFileError."""
    return read(path).config


def read(path: Path) -> NodeFile:
    """All that a file says. Raises NodeFileError."""
    try:
        return _file(_tree(path.read_text()))
    except NodeFileError as error:
        raise NodeFileError(f"{path}: {error}") from None
    except OSError as error:
        raise NodeFileError(f"{path}: {error.strerror}: name a file of a node's settings") from None
    except UnicodeDecodeError as error:
        raise NodeFileError(f"{path}: not a text in UTF-8: {error}") from None


class _Loader(yaml.SafeLoader):
    """YAML's, but a key that is there twice is a mistake: the first would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise NodeFileError(f"{key}: is given twice, in line {node.start_mark.line + 1} and below")
        return super().construct_mapping(node, deep)


def _tree(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        raise NodeFileError(f"not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise NodeFileError("not YAML that can be read: it is nested too deeply") from None


def _file(tree: Any) -> NodeFile:
    found = _members("", {} if tree is None else tree, _TOP)
    if "reserved" in found and "reserved_count" in found:
        raise NodeFileError("reservedCPUs and reservedCPUCount are two reservations: give one of them")
    kubelet, theirs = found.pop("kubelet_state", None), found.pop("simulated", {})
    pools = replace(found.pop("pools", PoolOptions()), **_only(found, "allocator"))
    own = {"memory": _memory(found), **_only(found, "devices"), **_only(found, "reserved")}
    usual = replace(NodeConfig(policy="pools", pools=pools), **found.pop("static", {}), **found)
    theirs = {"memory": _memory(theirs, "simulated."), **theirs}
    bare = replace(usual, pools=replace(pools, withheld=CPUSet(), system=CPUSet()))
    return NodeFile(replace(usual, **own), replace(bare, **theirs), kubelet)


def _memory(found: dict[str, Any], within: str = "") -> MemoryOptions:
    """The memory manager of some settings, which are then without it."""
    policy, reserved = found.pop("memory_policy", "None"), found.pop("reserved_memory", {})
    if reserved and policy == "None":
        raise NodeFileError(
            f"{within}reservedMemory: memory manager policy None reserves none: "
            f"say {within}memoryManagerPolicy: Static, or leave it out"
        )
    return MemoryOptions(policy, reserved)


def _only(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: found.pop(name)} if name in found else {}


def explain(error: NodeConfigError) -> str:
    """A setting that this machine cannot honour, with its name in the file."""
    if "reserved memory" in str(error):
        return f"reservedMemory: {error}"
    field, colon, rest = str(error).partition(":")
    return f"{_IN_FILE[field]}:{rest}" if colon and field in _IN_FILE else str(error)


# -- readers


def _members(field: str, value: Any, known: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    """A mapping with known keys, each to its member of the settings."""
    if not isinstance(value, dict):
        raise _wrong(field or "the file", value, f"a mapping with {_listed(known)}")
    found = {}
    for key, one in value.items():
        path = f"{field}.{key}" if field else str(key)
        if key not in known:
            raise NodeFileError(f"{path}: unknown, {_short(one)}: use {_listed(known)}")
        name, reader = known[key]
        found[name] = reader(path, one)
    return found


def _word(words: Mapping[str, Any], field: str, value: Any) -> Any:
    text = "None" if value is None and "None" in words else value
    if not isinstance(text, str) or text not in words:
        raise _wrong(field, value, _listed(words, "or"))
    return words[text]


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, value, "true or false")
    return value


def _count(least: int, field: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(field, value, f"a whole number from {least}")
    return value


def _cpus(field: str, value: Any) -> CPUSet:
    """A single CPU may be written as a number."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    try:
        return CPUSet.parse(text if isinstance(text, str) else "?")
    except CPUSetError:
        raise _wrong(field, value, 'a CPU list such as "0-1,8"') from None


def _sizes(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise _wrong(field, value, "a list of numbers of CPUs such as [2, 4, 8, 16]")
    return tuple(_count(1, f"{field}[{i}]", one) for i, one in enumerate(value))


def _zones(field: str, value: Any) -> frozenset[Level]:
    """NUMA nodes are always among them: without them nobody learns of memory and distances."""
    if not isinstance(value, list):
        raise _wrong(field, value, f"a list of {_listed(_LEVELS)}")
    return frozenset({"node", *(_word(_LEVELS, f"{field}[{i}]", one) for i, one in enumerate(value))})


def _pools(field: str, value: Any) -> PoolOptions:
    return PoolOptions(**_members(field, value, _POOLS))


def _static(field: str, value: Any) -> dict[str, Any]:
    """The kubelet's names and values, and its errors."""
    found = _members(field, value, _STATIC)
    policy, scope = found.get("policy", "best-effort"), found.get("scope", "container")
    try:
        options = StaticOptions.parse(found.get("options", {}))
        numa = TopologyOptions.parse(policy, scope, found.get("topology", {}))
    except NodeConfigError as error:
        raise NodeFileError(f"{field}: {error}") from None
    return {"options": options, "numa": numa}


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(field, value, "a word")
    return value


def _texts(field: str, value: Any) -> dict[str, str]:
    """The kubelet's options are texts; YAML's booleans and numbers are taken for theirs."""
    if not isinstance(value, dict):
        raise _wrong(field, value, "a mapping of option names to texts")
    return {
        str(key): str(one).lower() if isinstance(one, bool) else _scalar(f"{field}.{key}", one)
        for key, one in value.items()
    }


def _scalar(field: str, value: Any) -> str:
    if not isinstance(value, str | int):
        raise _wrong(field, value, 'a text such as "true"')
    return str(value)


def _reserved_memory(field: str, value: Any) -> Mapping[int, Mapping[str, int]]:
    """As in the kubelet's configuration file, with its errors."""
    try:
        return memory_settings.configured("", value) or {}
    except SettingsError as error:
        raise NodeFileError(str(error).replace(": reservedMemory", field, 1)) from None


def _devices(field: str, value: Any) -> Inventory:
    """Resource to device to the NUMA node (a mask of ids) that it is near."""
    if not isinstance(value, dict) or not value:
        raise _wrong(field, value, "a mapping such as {example.com/nic: {0: 2, 1: 2}}")
    return {_resource(field, name): dict(_near(f"{field}.{name}", name, by)) for name, by in value.items()}


def _resource(field: str, name: Any) -> str:
    domain = name.partition("/")[0] if isinstance(name, str) and "/" in name else ""
    if not domain or formats.qualified_name(name) or domain.endswith("kubernetes.io"):
        raise NodeFileError(f"{field}: {_short(name)} cannot be a resource: use one such as example.com/nic")
    return str(name)


def _near(field: str, resource: str, by: Any) -> Iterator[tuple[str, int]]:
    if not isinstance(by, dict):
        raise _wrong(field, by, "NUMA nodes with the number or names of their devices, such as {0: 2, 1: 2}")
    known: set[str] = set()
    for node, listed in by.items():
        number = _count(0, f"{field}: NUMA node", node)
        for device in _ids(f"{field}.{number}", f"{resource.partition('/')[2]}-{number}", listed):
            if device in known:
                raise NodeFileError(f"{field}: has two devices {_short(device)}: name each once")
            known.add(device)
            yield device, 1 << _most(MOST_NODES, f"{field}: NUMA node", number)


def _ids(field: str, stem: str, listed: Any) -> list[str]:
    """The names of devices that are given by name or number."""
    if isinstance(listed, list) and all(isinstance(one, str) and one for one in listed):
        return listed
    if isinstance(listed, list):
        raise _wrong(field, listed, "names of devices such as [eth0, eth1], or how many there are")
    return [f"{stem}-{i}" for i in range(_most(MOST_DEVICES, field, _count(0, field, listed)))]


def _most(most: int, field: str, number: int) -> int:
    if number > most:
        raise _wrong(field, number, f"a number up to {most}")
    return number


def _gates(field: str, value: Any) -> bool:
    """Whether PodLevelResourceManagers is on, the one of the kubelet's gates that makes a difference."""
    if not isinstance(value, dict) or value.keys() - {GATE}:
        raise _wrong(field, value, f"{{{GATE}: true}}, the only gate that makes a difference here")
    return bool(_flag(f"{field}.{GATE}", value.get(GATE, False)))


def _path(field: str, value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise _wrong(field, value, "the whole path of a file such as /var/lib/kubelet/cpu_manager_state")
    return Path(value)


def _simulated(field: str, value: Any) -> dict[str, Any]:
    return _members(field, value, _OWN)


def _wrong(field: str, value: Any, allowed: str) -> NodeFileError:
    return NodeFileError(f"{field}: {_short(value)} cannot be: use {allowed}")


def _short(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _listed(words: Iterable[str], last: str = "and") -> str:
    names = list(words)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def _of(*words: str) -> Reader:
    return partial(_word, {word: word for word in words})


_LEVELS: Final = {level: level for level in get_args(Level)}
_BINDS: Final = {
    "None": None,
    "FullPCPUs": BindPolicy.FULL_PCPUS,
    "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS,
}
_NODE_BINDS: Final = {
    "None": None,
    "FullPCPUsOnly": BindPolicy.FULL_PCPUS,
    "SpreadByPCPUs": BindPolicy.SPREAD_BY_PCPUS,
}
_POOLS: Final[Mapping[str, tuple[str, Reader]]] = {
    "guaranteedDefault": ("guaranteed_default", partial(_word, {"LSR": PodQOS.LSR, "LS": PodQOS.LS})),
    "strictRequests": ("strict_requests", _flag),
    "beMinimum": ("be_minimum", partial(_count, 0)),
    "isolatedCPUs": ("isolated_cpus", _of(*get_args(IsolatedCPUs))),
    "bindPolicy": ("bind", partial(_word, _BINDS)),
    "nodeBindPolicy": ("node_bind", partial(_word, _NODE_BINDS)),
    "numaStrategy": ("strategy", partial(_word, {"None": None} | {one.value: one for one in NUMAStrategy})),
    "numaPolicy": ("numa", partial(_word, {one.value or "None": one for one in NUMAPolicy})),
    "distributeAsProposed": ("as_proposed", _flag),
    "withheldCPUs": ("withheld", _cpus),
    "systemQoSCPUs": ("system", _cpus),
    "systemQoSExclusive": ("system_exclusive", _flag),
    "demandProfile": ("profile", _sizes),
}
_STATIC: Final[Mapping[str, tuple[str, Reader]]] = {
    "cpuManagerPolicyOptions": ("options", _texts),
    "topologyManagerPolicy": ("policy", _text),
    "topologyManagerScope": ("scope", _text),
    "topologyManagerPolicyOptions": ("topology", _texts),
}
_OWN: Final[Mapping[str, tuple[str, Reader]]] = {
    "reservedCPUs": ("reserved", _cpus),
    "memoryManagerPolicy": ("memory_policy", _of(*get_args(MemoryPolicy))),
    "reservedMemory": ("reserved_memory", _reserved_memory),
    "devices": ("devices", _devices),
}
"""What is a machine's own."""
_TOP: Final[Mapping[str, tuple[str, Reader]]] = {
    "policy": ("policy", _of(*get_args(Policy))),
    "allocator": ("allocator", _of(*get_args(AllocatorName))),
    **_OWN,
    "reservedCPUCount": ("reserved_count", partial(_count, 1)),
    "zones": ("zones", _zones),
    "pools": ("pools", _pools),
    "static": ("static", _static),
    "featureGates": ("pod_level", _gates),
    "kubeletState": ("kubelet_state", _path),
    "simulated": ("simulated", _simulated),
}
_IN_FILE: Final = {name: f"pools.{key}" for key, (name, _) in _POOLS.items()} | {
    "reserved": "reservedCPUs",
    "reserved_count": "reservedCPUCount",
    "reserved_memory": "reservedMemory",
}
