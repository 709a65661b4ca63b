"""The steps that the kubelet's picker reports, as sentences."""

from collections.abc import Callable, Iterator
from typing import Final

from corelane.cpuset import format_list, named
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig
from corelane.node.explain.pod_explanation import Step
from corelane.placement.kubelet import picker
from corelane.placement.kubelet import steps as reported
from corelane.placement.kubelet.steps import NodeShare, Why
from corelane.placement.topology import Topology

__all__ = ["explain"]

_LEVELS: Final = {"numa node": "NUMA node", "l3": "L3 domain", "socket": "socket"}


def explain(
    machine: Machine, topology: Topology, config: NodeConfig, cpus: int, n: int, hinted: int = 0
) -> list[Step]:
    """Return the steps by which the picker takes n of these CPUs. Raises NotEnoughCPUs, AccountingError."""
    steps = reported.PickerSteps()
    take = picker.take if config.exact else picker.take_valid
    take(topology, cpus, n, config.options.strategy(topology), hinted=hinted, reporter=steps)
    names = _unit_names(machine, topology)
    return [Step(one.level, _SENTENCES[one.why](one, names), format_list(one.cpus)) for one in steps.steps]


class _Names(dict[tuple[str, int], str]):
    """Level and mask of a unit to its name."""

    def __missing__(self, key: tuple[str, int]) -> str:
        level, unit = key
        return f"{_LEVELS[level]} of {named(unit)}"

    def node(self, share: NodeShare) -> str:
        return self["numa node", share.node]


def _unit_names(machine: Machine, topology: Topology) -> _Names:
    levels = (
        ("l3", machine.l3_masks),
        ("numa node", machine.numa_masks),
        ("socket", machine.socket_masks),
    )
    return _Names(
        ((level, mask & topology.all), f"{_LEVELS[level]} {number}")
        for level, units in levels
        for number, mask in units
    )


def _whole_unit(step: reported.PickerStep, names: _Names) -> str:
    return f"all of {names[step.level, step.unit]}: idle, and {_count(step.need)} needed"


def _no_whole_unit(step: reported.PickerStep, _: _Names) -> str:
    level = _LEVELS[step.level]
    if step.smallest > step.need:
        return f"no whole {level}: the smallest has {_count(step.smallest)}, {step.need} needed"
    return f"no whole {level}: none is idle and has {_count(step.need)} or fewer"


def _fits_cache(step: reported.PickerStep, names: _Names) -> str:
    return f"{names['l3', step.unit]} has {_count(step.free, 'free CPU')}, {step.need} needed"


def _no_cache_fits(step: reported.PickerStep, _: _Names) -> str:
    return f"no L3 domain has cores with exactly {_count(step.need, 'free CPU')}"


def _whole_cores(step: reported.PickerStep, names: _Names) -> str:
    return f"whole cores from {_origin(step, names)}{_following('core', step)}"


def _no_idle_core(_: reported.PickerStep, __: _Names) -> str:
    return "no core is idle"


def _single_cpus(step: reported.PickerStep, _: _Names) -> str:
    how = "from cores in partial use first" if step.in_part else "from the first idle core"
    return f"{_count(step.need, 'single CPU')} {how}{_following('CPUs', step)}"


def _spread_by_id(step: reported.PickerStep, names: _Names) -> str:
    return f"CPUs in order of their ids from {_origin(step, names)}"


def _spread_in_turn(step: reported.PickerStep, names: _Names) -> str:
    return f"one CPU of each core in turn, cores in partial use first, from {_origin(step, names)}"


def _distributed(step: reported.PickerStep, names: _Names) -> str:
    taken = ", ".join(f"{names.node(one)}: {one.taken}" for one in step.nodes if one.taken)
    free = ", ".join(f"{names.node(one)}: {one.free}" for one in step.nodes)
    giving = sum(1 for one in step.nodes if one.taken)
    how = "from one NUMA node" if giving == 1 else f"evenly from {giving} NUMA nodes"
    return f"{how} ({taken}), which leaves the most even free CPUs (before: {free})"


def _mixed_up_nodes(step: reported.PickerStep, _: _Names) -> str:
    return f"{step.need} NUMA nodes: kubelets before 1.38 replace some of them (kubernetes#141238)"


def _not_distributed(_: reported.PickerStep, __: _Names) -> str:
    return "no number of NUMA nodes can give equal shares: packed instead"


def _lowest_ids(_: reported.PickerStep, __: _Names) -> str:
    return "the lowest ids: the release's own algorithm finds no valid set"


_SENTENCES: Final[dict[Why, Callable[[reported.PickerStep, _Names], str]]] = {
    Why.WHOLE_UNIT: _whole_unit,
    Why.NO_WHOLE_UNIT: _no_whole_unit,
    Why.FITS_CACHE: _fits_cache,
    Why.NO_CACHE_FITS: _no_cache_fits,
    Why.WHOLE_CORES: _whole_cores,
    Why.NO_IDLE_CORE: _no_idle_core,
    Why.SINGLE_CPUS: _single_cpus,
    Why.SPREAD_BY_ID: _spread_by_id,
    Why.SPREAD_IN_TURN: _spread_in_turn,
    Why.DISTRIBUTED: _distributed,
    Why.MIXED_UP_NODES: _mixed_up_nodes,
    Why.NOT_DISTRIBUTED: _not_distributed,
    Why.LOWEST_IDS: _lowest_ids,
}


def _origin(step: reported.PickerStep, names: _Names) -> str:
    """Name the nodes that give CPUs, and the free CPUs of all if there was a choice."""
    giving = ", ".join(names.node(one) for one in step.nodes if one.taken)
    if all(one.taken for one in step.nodes):
        return giving
    free = ", ".join(f"{names.node(one)}: {one.free}" for one in _by_free(step))
    return f"{giving} (fewest free CPUs first: {free})"


def _by_free(step: reported.PickerStep) -> Iterator[NodeShare]:
    yield from (one for one in step.nodes if one.taken)
    yield from (one for one in step.nodes if not one.taken)


def _following(kind: str, step: reported.PickerStep) -> str:
    return f"; next would be {kind} {format_list(step.following)}" if step.following else ""


def _count(count: int, noun: str = "CPU") -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
