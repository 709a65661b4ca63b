"""Options of the kubelet's CPU, memory and topology managers: names, values, conflicts.

Names and error texts are upstream's (v1.36): `policy_options.go` of cpumanager and topologymanager, and
`memory_manager.go`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast, get_args

from corelane.machine.model import Machine
from corelane.placement import families
from corelane.placement.kubelet.picker import Strategy, Version
from corelane.placement.memory_blocks import MEMORY
from corelane.placement.topology import Topology
from corelane.placement.topologymanager import Policy, Scope

MemoryPolicy: TypeAlias = Literal["None", "Static"]

_NOTHING: Final[Mapping[int, Mapping[str, int]]] = MappingProxyType({})
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_CONFLICTS = (
    ("full_pcpus_only", "distribute_cpus_across_cores"),
    ("distribute_cpus_across_numa", "distribute_cpus_across_cores"),
    ("prefer_align_cpus_by_uncorecache", "distribute_cpus_across_cores"),
    ("prefer_align_cpus_by_uncorecache", "distribute_cpus_across_numa"),
)


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """`cpuManagerPolicyOptions`, each by its upstream name with underscores; `version` is the kubelet's."""

    full_pcpus_only: bool = False
    """Requests are multiples of a core's threads, and met with cores that hold no reserved CPU (KEP-2625)."""
    strict_cpu_reservation: bool = False
    """The shared pool does not contain the reserved CPUs (KEP-4540)."""
    prefer_align_cpus_by_uncorecache: bool = False
    """CPUs come from one L3 cache where possible (KEP-4800)."""
    distribute_cpus_across_numa: bool = False
    """CPUs come evenly from the fewest NUMA nodes that hold them (KEP-2902)."""
    align_by_socket: bool = False
    """NUMA nodes of one socket count as one place (KEP-3327)."""
    distribute_cpus_across_cores: bool = False
    """CPUs come from different cores first (KEP-4176)."""
    version: Version = "1.36"

    @classmethod
    def parse(cls, values: Mapping[str, str], version: Version = "1.36") -> "StaticOptions":
        """From a kubelet configuration's map. Raises NodeConfigError with upstream's text."""
        names = {_upstream(field.name): field.name for field in fields(cls) if field.name != "version"}
        for name in values:
            if name not in names:
                raise NodeConfigError(f'unknown CPU Manager Policy option: "{name}"')
        flags = {names[name]: parse_bool(name, text) for name, text in values.items()}
        return cls(**flags, version=version)

    def strategy(self, topology: Topology) -> Strategy:
        """Return the picker's options on a machine."""
        return Strategy(
            distribute=self.distribute_cpus_across_numa,
            spread=self.distribute_cpus_across_cores,
            uncore=self.prefer_align_cpus_by_uncorecache,
            group=topology.cpus_per_core if self.full_pcpus_only else 1,
            by_socket=self.align_by_socket,
            version=self.version,
        )

    def check(self, topology: Topology, policy: Policy) -> None:
        """Raises NodeConfigError, with upstream's text, for options that exclude each other or do not fit."""
        for option, other in _CONFLICTS:
            if getattr(self, option) and getattr(self, other):
                raise NodeConfigError(
                    f"static policy options {_upstream(option)} and {_upstream(other)} "
                    "can not be used at the same time"
                )
        if self.align_by_socket and policy == "single-numa-node":
            raise NodeConfigError(
                "Topolgy manager single-numa-node policy is incompatible with "
                "CPUManager align-by-socket policy option"
            )
        if self.align_by_socket and topology.counters.sockets > topology.counters.numa:
            raise NodeConfigError(
                "Align by socket is not compatible with hardware "
                "where number of sockets are more than number of NUMA"
            )


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The topology manager: `topologyManagerPolicy`, `topologyManagerScope` and its options."""

    policy: Policy = "best-effort"
    scope: Scope = "container"
    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int | None = None
    """Machines with more NUMA nodes are refused, as by the kubelet, whose default is 8; None takes any."""

    @classmethod
    def parse(cls, policy: str, scope: str, values: Mapping[str, str]) -> "TopologyOptions":
        """From a kubelet configuration's fields. Raises NodeConfigError with upstream's text."""
        closest, most = False, 8
        for name, text in values.items():
            if name == "prefer-closest-numa-nodes":
                closest = parse_bool(name, text)
            elif name == "max-allowable-numa-nodes":
                most = _node_count(name, text)
            else:
                raise NodeConfigError(f'unknown Topology Manager Policy option: "{name}"')
        if policy not in get_args(Policy):
            raise NodeConfigError(f'unknown policy: "{policy}"')
        if scope not in get_args(Scope):
            raise NodeConfigError(f'unknown scope: "{scope}"')
        return cls(cast("Policy", policy), cast("Scope", scope), closest, most)

    def check(self, nodes: int) -> None:
        """Raises NodeConfigError when the machine has more NUMA nodes than allowed."""
        most = self.max_allowable_numa_nodes
        if self.policy != "none" and most is not None and nodes > most:
            raise NodeConfigError(f"unsupported on machines with more than {most} NUMA Nodes")


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The memory manager: `memoryManagerPolicy` and `reservedMemory` (KEP-1769)."""

    policy: MemoryPolicy = "None"
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: _NOTHING)
    """NUMA node id to resource (`memory`, `hugepages-2Mi`) to the bytes of it that pods never get."""

    def check(self, machine: Machine) -> None:
        """Raises NodeConfigError, where upstream has one with its text."""
        if self.policy not in get_args(MemoryPolicy):
            raise NodeConfigError(f'unknown policy: "{self.policy}"')
        if self.policy == "None":
            return
        nodes = {node.id for node in machine.nodes}
        for node in self.reserved:
            if node not in nodes:
                raise NodeConfigError(
                    f"the reserved memory configuration references a NUMA node {node} "
                    "that does not exist on this machine",
                    "reserved_memory",
                    upstream=True,
                )
        if not sum(of.get(MEMORY, 0) for of in self.reserved.values()):
            raise NodeConfigError(
                "[memorymanager] you should specify the system reserved memory",
                "reserved_memory",
                upstream=True,
            )
        if len(nodes) > families.MOST_NODES:
            raise NodeConfigError(
                f"memory manager policy Static: {len(nodes)} NUMA nodes are more than {families.MOST_NODES}, "
                "whose sets are too many to choose from: use policy None"
            )


def parse_bool(name: str, text: str) -> bool:
    """Go's ParseBool. Raises NodeConfigError with upstream's text."""
    if text not in (*_TRUE, *_FALSE):
        raise NodeConfigError(
            f'bad value for option "{name}": strconv.ParseBool: parsing "{text}": invalid syntax'
        )
    return text in _TRUE


def _node_count(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        raise NodeConfigError(
            f'unable to convert policy option to integer "{name}": '
            f'strconv.Atoi: parsing "{text}": invalid syntax'
        )
    if int(text) < 8:
        raise NodeConfigError(f'the minimum value of "{name}" should not be less than 8')
    return int(text)


def _upstream(name: str) -> str:
    return name.replace("_", "-")


class NodeConfigError(ValueError):
    """A setting that is invalid, or that this machine cannot honour.

    `field` is the member of `NodeConfig` or `PoolOptions`, "" where the text is about several; `detail` is
    the text without it. Where upstream has an error for it, the text is upstream's, without the field.
    """

    def __init__(self, detail: str, field: str = "", *, upstream: bool = False) -> None:
        super().__init__(detail if upstream or not field else f"{field}: {detail}")
        self.field, self.detail = field, detail
