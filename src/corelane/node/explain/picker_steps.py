"""The steps that the kubelet's picker reports, as sentences."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from corelane.cpuset import format_list, named
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig
from corelane.node.explain.pod_explanation import Step
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.steps import PickerStep, PickerSteps, Why
from corelane.placement.topology import Topology

_LEVELS: Final = {"numa node": "NUMA node", "l3": "L3 domain", "socket": "socket"}
_SENTENCES: Final = {
    Why.WHOLE_UNIT: "all of {unit}: idle, and {need} needed",
    Why.NO_WHOLE_UNIT: "no whole {level}: none is idle and has {need} or fewer",
    Why.FITS_CACHE: "{unit} has {free}, {missing} needed",
    Why.NO_CACHE_FITS: "no L3 domain has cores with exactly {need} free",
    Why.WHOLE_CORES: "whole cores from {origin}{next_core}",
    Why.NO_IDLE_CORE: "no core is idle",
    Why.SINGLE_CPUS: "{single} from {first}{next_cpus}",
    Why.SPREAD_BY_ID: "CPUs in order of their ids from {origin}",
    Why.SPREAD_IN_TURN: "one CPU of each core in turn, cores in partial use first, from {origin}",
    Why.DISTRIBUTED: "{shares}, which leaves the most even free CPUs (before: {before})",
    Why.MIXED_UP_NODES: "{missing} NUMA nodes: kubelets before 1.38 replace some of them (kubernetes#141238)",
    Why.NOT_DISTRIBUTED: "no number of NUMA nodes can give equal shares: packed instead",
    Why.LOWEST_IDS: "the lowest ids: the release's own algorithm finds no valid set",
}
_TOO_LARGE: Final = "no whole {level}: the smallest has {smallest}, {missing} needed"


def explain(
    machine: Machine, topology: Topology, config: NodeConfig, cpus: int, n: int, hinted: int = 0
) -> list[Step]:
    """Return the steps by which the picker takes n of these CPUs. Raises NotEnoughCPUs, AccountingError."""
    steps = PickerSteps()
    take = picker.take if config.exact else picker.take_valid
    take(topology, cpus, n, config.options.strategy(topology), hinted=hinted, reporter=steps)
    names = _unit_names(machine, topology)
    return [Step(one.level, _sentence(one, names), format_list(one.cpus)) for one in steps.steps]


_Names: TypeAlias = Mapping[tuple[str, int], str]
"""Level and mask of a unit to its name."""


def _unit_names(machine: Machine, topology: Topology) -> _Names:
    units = {"l3": machine.l3_masks, "numa node": machine.numa_masks, "socket": machine.socket_masks}
    return {
        (level, mask & topology.all): f"{_LEVELS[level]} {number}"
        for level, masks in units.items()
        for number, mask in masks
    }


def _name(names: _Names, level: str, unit: int) -> str:
    return names.get((level, unit)) or f"{_LEVELS[level]} of {named(unit)}"


def _sentence(step: PickerStep, names: _Names) -> str:
    too_large = step.why is Why.NO_WHOLE_UNIT and step.smallest > step.need
    following = format_list(step.following)
    giving = [one for one in step.nodes if one.taken]
    shares = _counts({one.node: one.taken for one in giving}, names)
    return (_TOO_LARGE if too_large else _SENTENCES[step.why]).format(
        level=_LEVELS.get(step.level, ""),
        unit=_name(names, step.level, step.unit) if step.unit else "",
        need=_count(step.need, "CPU"),
        missing=step.need,
        smallest=_count(step.smallest, "CPU"),
        free=_count(step.free, "free CPU"),
        single=_count(step.need, "single CPU"),
        first="cores in partial use first" if step.in_part else "the first idle core",
        next_core=f"; next would be core {following}" if following else "",
        next_cpus=f"; next would be CPUs {following}" if following else "",
        origin=_origin(step, names),
        shares=f"{'evenly ' if len(giving) > 1 else ''}from {_count(len(giving), 'NUMA node')} ({shares})",
        before=_counts({one.node: one.free for one in step.nodes}, names),
    )


def _origin(step: PickerStep, names: _Names) -> str:
    """Name the nodes that give CPUs, and the free CPUs of all if there was a choice."""
    ordered = sorted(step.nodes, key=lambda one: not one.taken)
    nodes = ", ".join(_name(names, "numa node", one.node) for one in ordered if one.taken)
    if all(one.taken for one in ordered):
        return nodes
    return f"{nodes} (fewest free CPUs first: {_counts({one.node: one.free for one in ordered}, names)})"


def _counts(nodes: Mapping[int, int], names: _Names) -> str:
    return ", ".join(f"{_name(names, 'numa node', node)}: {count}" for node, count in nodes.items())


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
