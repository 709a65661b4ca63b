"""What is taken off each NUMA node of one node beside what its pods request: real load, once it is measured.

A canonical state with deductions is another one, so that whatever follows from it (facts, the tables of
columns, answers) has them. Exported zones have less available; where CPUs have ids, the ledger stays as it
is, and the CPUs that it would give are compared with what is left: a node that would give some of a loaded
NUMA node is refused, though another one has room. They are zero for now: nothing sets them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from corelane.node import Decision
from corelane.node.zones.zone_state import ZonesState
from corelane.reasons import Code, Reason
from corelane.scheduler.cache.zone_amounts import ZoneAmounts

Deductions: TypeAlias = tuple[tuple[int, int], ...]
"""NUMA node and milliCPU, ascending; only those above 0."""

NONE: Final[Deductions] = ()


def deductions(milli: Mapping[int, int]) -> Deductions:
    """Return NUMA node to milliCPU as a value that can be compared."""
    return tuple(sorted((numa, amount) for numa, amount in milli.items() if amount > 0))


def without(state: ZonesState, off: Deductions) -> ZonesState:
    """Return exported zones with less CPU available."""
    milli = dict(off)
    zones = tuple(
        replace(zone, available={**zone.available, "cpu": max(0, zone.available["cpu"] - milli[zone.id])})
        if zone.id in milli and "cpu" in zone.available
        else zone
        for zone in state.zones
    )
    return replace(state, zones=zones)


def deducted(amounts: Iterable[ZoneAmounts], off: Deductions) -> tuple[ZoneAmounts, ...]:
    """Return the amounts without what is deducted."""
    milli = dict(off)
    return tuple(_deducted(zone, milli.get(zone.numa, 0)) for zone in amounts)


def _deducted(zone: ZoneAmounts, milli: int) -> ZoneAmounts:
    return replace(zone, cpu=max(0, zone.cpu - milli), deduction=milli) if milli else zone


def decided(
    decision: Decision, before: Iterable[ZoneAmounts], after: Iterable[ZoneAmounts], off: Deductions
) -> Decision:
    """Return the decision, a refusal where the pod gets CPUs of which real load leaves too few.

    `before` and `after` are the amounts without and with the pod, nothing deducted.
    """
    milli, left = dict(off), {zone.numa: zone.cpu for zone in after}
    for zone in before:
        taken, load = zone.cpu - left.get(zone.numa, 0), milli.get(zone.numa, 0)
        if decision.admitted and taken > 0 and load and taken > zone.cpu - load:
            return Decision(
                False, Reason(Code.ZONE_LOADED, (zone.numa, taken, max(0, zone.cpu - load), load))
            )
    return decision
