"""The option to raise a request, for a container that other processes hold back (see `starvation`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from corelane.limits.advice import consequences, patches, starvation
from corelane.limits.advice.consequences import NewResources, Risk, RiskLevel
from corelane.limits.advice.effects import Range
from corelane.limits.advice.options import Effect, Option, OptionKind
from corelane.limits.advice.starvation import Starvation
from corelane.limits.advice.subjects import NodeOccupancy, Subject
from corelane.limits.measure.throttling import Rates

Names = Mapping[str, tuple[str, str, str]]
_NO_TAIL: Final = "not predicted for another request: measure it after the change"
_NAMED: Final = 3


def why(starved: Starvation) -> str:
    """What the container is held back by, in one sentence."""
    need = _amount(starved.need)
    return (
        f"waits {starved.waited:.0f} ms/s for other processes: uses {starved.used:.0f}m, needs {need}, its "
        f"weight entitles it to {starved.entitled:.0f}m"
    )


def _amount(need: Range) -> str:
    low, high = f"{need.low:.0f}", f"{need.high:.0f}m"
    return high if f"{low}m" == high else f"{low} to {high}"


def option(
    subject: Subject, starved: Starvation, rates: Rates, nodes: Sequence[NodeOccupancy], names: Names
) -> Option | None:
    """Raise the request to what entitles the container to what it needs; None where nothing does."""
    new = starved.request
    if new is None or subject.exclusive:
        return None
    limit = max(subject.limit, new) if subject.limit else 0
    amounts: dict[str, Any] = {"requests": {"cpu": patches.cpus(new)}}
    if limit != subject.limit:
        amounts["limits"] = {"cpu": patches.cpus(limit)}
    after = NewResources(new, limit, subject.memory_request, subject.memory_limit)
    throttled = rates.throttled or 0.0
    gets = Range(min(starved.gets, starved.need.low), starved.gets)
    both = " and limit" if limit != subject.limit else ""
    same = subject.listed and consequences.qos(subject, after) is subject.qos
    return Option(
        OptionKind.RAISE_REQUEST,
        f"raise the request{both} to {patches.cpus(new)}",
        Effect(Range(throttled, throttled), gets, Range(0.0, 0.0), no_tail=_NO_TAIL),
        _risk(subject, new, nodes),
        tuple(_consequences(subject, starved, after, gets, rates, names)),
        patches.container(subject, {"resources": amounts}, resize=same),
    )


def _risk(subject: Subject, new: int, nodes: Sequence[NodeOccupancy]) -> Risk:
    """Whether its nodes can guarantee the request."""
    sized = [node for node in nodes if node.milli]
    if not sized:
        return consequences.unlimited(nodes, None)
    if full := consequences.crowded(sized, new, subject.request):
        return replace(full, why=f"{full.why}: not guaranteed while all pods are busy")
    node = max(sized, key=lambda one: consequences.requested_milli(one, new, subject.request) / one.milli)
    requested = consequences.requested_milli(node, new, subject.request)
    name = f"node {node.name}" if node.name else "its node"
    text = f"{name}: {requested / 1000:g} of {node.milli / 1000:g} CPUs requested then, so it is guaranteed"
    return Risk(RiskLevel.LOW, f"{text}; pods that use more than they request get less")


def _consequences(
    subject: Subject, starved: Starvation, after: NewResources, gets: Range, rates: Rates, names: Names
) -> Iterator[str]:
    yield (
        f"while the others stay as busy it is entitled to {starved.gets:.0f}m of the {_amount(starved.need)} "
        "that it needs"
    )
    losers = list(zip(starvation.titles(starved.losers, names), starved.losers, strict=True))
    for title, each in losers[:_NAMED]:
        yield f"must give way: {title} uses {each.used:.0f}m, then {each.after:.0f}m"
    if len(losers) > _NAMED:
        yield f"{len(losers) - _NAMED} more that use less give way, too"
    yield (
        f"a recommendation from use (VPA: 90th percentile and 15 %) is {starved.use}m, which entitles it to "
        f"{starved.use_gets:.0f}m: use stops at what others leave, so it understates the need"
        if starved.use < (starved.request or 0)
        else f"a recommendation from use (VPA: 90th percentile and 15 %) is {starved.use}m"
    )
    if subject.listed:
        yield consequences.qos_text(subject, consequences.qos(subject, after))
        yield from consequences.utilisation(subject, after.request, rates.used or 0.0, gets)
