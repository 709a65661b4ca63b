"""What an operator decides about one node, and which CPUs that keeps for the shared pool."""

from dataclasses import dataclass
from typing import Literal, get_args

from corelane.cpuset import CPUSet, format_list
from corelane.placement import accumulator
from corelane.placement.topology import Topology

__all__ = ["NodeConfig", "NodeConfigError", "Policy", "check", "default_reserved_count", "reserve"]

Policy = Literal["none", "static"]


class NodeConfigError(ValueError):
    """A setting that this machine cannot honour: says which, its value, and what to do."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    `reserved` are the CPUs that never become exclusive. Without it, `reserved_count` of them are picked as
    the kubelet would; without that, max(1, ceil(5 %)).
    """

    policy: Policy = "static"
    reserved: CPUSet | None = None
    reserved_count: int | None = None


def default_reserved_count(cpus: int) -> int:
    """max(1, ceil(5 %)) of a machine's CPUs."""
    return max(1, -(-cpus // 20))


def check(config: NodeConfig, topology: Topology) -> None:
    """Raises NodeConfigError where the settings make no sense, or not on this machine."""
    if config.policy not in get_args(Policy):
        raise NodeConfigError(f"policy: {config.policy!r} is unknown: use {' or '.join(get_args(Policy))}")
    cpus, count = topology.all.bit_count(), config.reserved_count
    if count is not None and not 1 <= count <= cpus:
        raise NodeConfigError(
            f"reserved_count: {count} is not between 1 and {cpus}, the CPUs of this machine"
        )
    if config.reserved is not None:
        _check_reserved(config.reserved, count, topology.all)


def _check_reserved(reserved: CPUSet, count: int | None, usable: int) -> None:
    if not reserved:
        raise NodeConfigError(
            "reserved: names no CPU, but the shared pool needs one: name one, or leave it out"
        )
    if missing := reserved.mask & ~usable:
        raise NodeConfigError(
            f"reserved: {reserved}: CPUs {format_list(missing)} cannot be used here: "
            f"choose from {format_list(usable)}"
        )
    if count not in (None, len(reserved)):
        raise NodeConfigError(
            f"reserved_count: {count} contradicts reserved: {reserved}: leave one of them out"
        )


def reserve(config: NodeConfig, topology: Topology, exclusive: int = 0, current: int = 0) -> int:
    """The mask of CPUs to reserve while `exclusive` are in use: what settings ask for, as far as it is free.

    CPUs reserved already (`current`) stay so, unless the settings name others.
    """
    free = topology.all & ~exclusive
    if config.reserved is not None and (named := config.reserved.mask & free):
        return named
    count = min(_count(config, topology), free.bit_count())
    current &= free
    missing = count - current.bit_count()
    if missing > 0:
        return current | accumulator.take(topology, free & ~current, missing, real_cores=True)
    return accumulator.take(topology, current, count, real_cores=True) if missing else current


def _count(config: NodeConfig, topology: Topology) -> int:
    if config.reserved is not None:
        return len(config.reserved)
    if config.reserved_count is not None:
        return config.reserved_count
    return default_reserved_count(topology.all.bit_count())
