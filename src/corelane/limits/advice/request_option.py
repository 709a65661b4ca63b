"""The option to raise a request, for a container that other processes hold back (see `starvation`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice import consequences, options, patches
from corelane.limits.advice.consequences import NewResources, Risk, RiskLevel
from corelane.limits.advice.effects import Fit, LimitChange, Range
from corelane.limits.advice.options import Effect, Option, OptionKind, effect_of
from corelane.limits.advice.starvation import Starvation
from corelane.limits.advice.subjects import NodeOccupancy, Subject
from corelane.limits.advice.tails import COLLECT_LATENCY
from corelane.limits.measure.throttling import Latency, Measurement

_NAMED: Final = 3


def why(starved: Starvation) -> str:
    """What the container is held back by, in one sentence."""
    need, least = _amount(starved.need), "at least " if starved.at_least else ""
    return (
        f"waits {least}{starved.waited:.0f} ms/s for other processes: uses {starved.used:.0f}m, needs "
        f"{need}, its weight entitles it to {starved.entitled:.0f}m"
    )


def _amount(need: Range) -> str:
    if math.isinf(need.high):
        return f"more than {need.low:.0f}m"
    low, high = f"{need.low:.0f}", f"{need.high:.0f}m"
    return high if f"{low}m" == high else f"{low} to {high}"


def option(
    subject: Subject,
    starved: Starvation,
    measured: Measurement,
    fit: Fit | None,
    nodes: Sequence[NodeOccupancy],
) -> Option | None:
    """Raise the request to what entitles the container to what it needs; None where nothing does.

    `fit` is what was fitted to the measurement; None without a limit and a latency, where nothing is to be
    forecast.
    """
    new, rates = starved.request, measured.rates
    if new is None or subject.exclusive or not isinstance(rates, Rates):
        return None
    limit = max(subject.limit, new) if subject.limit else 0
    amounts: dict[str, Any] = {"requests": {"cpu": patches.cpus(new)}}
    if limit != subject.limit:
        amounts["limits"] = {"cpu": patches.cpus(limit)}
    after = NewResources(new, limit, subject.memory_request, subject.memory_limit)
    gets = Range(min(starved.gets, starved.need.low), starved.gets)
    both = " and limit" if limit != subject.limit else ""
    same = subject.listed and consequences.qos(subject, after) is subject.qos
    return Option(
        OptionKind.RAISE_REQUEST,
        f"raise the request{both} to {patches.cpus(new)}",
        replace(_effect(fit, starved, limit - subject.limit, measured.latency), used=gets),
        _risk(subject, new, nodes),
        tuple(_consequences(subject, starved, after, gets, rates)),
        patches.container(subject, {"resources": amounts}, resize=same),
        request=new,
    )


def exclusive(subject: Subject, starved: Starvation, nodes: Sequence[NodeOccupancy]) -> Option | None:
    """Give the container exclusive CPUs, which no other process uses; None where it cannot have any."""
    if subject.exclusive or subject.init or subject.pod_level or not subject.listed:
        return None
    need = starved.need.low if math.isinf(starved.need.high) else starved.need.high
    count = max(math.ceil(need / 1000 - 0.05), 1)
    memory = subject.memory_limit or subject.memory_request
    amounts: dict[str, Any] = {"requests": {"cpu": str(count)}, "limits": {"cpu": str(count)}}
    if memory:
        amounts["requests"]["memory"] = amounts["limits"]["memory"] = str(memory)
    none = Range(0.0, 0.0)
    low, high = (min(each, 1000.0 * count) for each in (starved.need.low, starved.need.high))
    after = NewResources(1000 * count, 1000 * count, memory, memory, others_complete=True)
    return Option(
        OptionKind.WHOLE_CPUS,
        f"request {count} exclusive CPU{'s' * (count != 1)}: limit = request = {count}",
        Effect(none, Range(low, high), none, no_tail=COLLECT_LATENCY),
        consequences.exclusive(nodes, count, subject.request),
        (
            consequences.qos_text(subject, consequences.qos(subject, after)),
            *options.needs(subject, memory),
            *options.lifted_by(),
        ),
        patches.container(subject, {"resources": amounts}),
    )


def _effect(fit: Fit | None, starved: Starvation, raised: int, latency: Latency | None) -> Effect:
    """What the larger weight does, and a limit that is `raised` by so many milliCPU with the request."""
    none = Range(0.0, 0.0)
    if fit is None:
        return Effect(none, none, none, no_tail=COLLECT_LATENCY)
    limit = None if fit.now.limit is None else fit.now.limit + raised / 1000
    return effect_of(LimitChange(limit, fit.burst, weight=starved.weight), fit, latency)


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
    subject: Subject, starved: Starvation, after: NewResources, gets: Range, rates: Rates
) -> Iterator[str]:
    yield (
        f"while the others stay as busy it is entitled to {starved.gets:.0f}m of the {_amount(starved.need)} "
        "that it needs"
    )
    for each in starved.losers[:_NAMED]:
        yield f"must give way: {each.name} uses {each.used:.0f}m, then {each.after:.0f}m"
    if len(starved.losers) > _NAMED:
        yield f"{len(starved.losers) - _NAMED} more that use less give way, too"
    yield (
        f"a recommendation from use (VPA: 90th percentile and 15 %) is {starved.use}m, which entitles it to "
        f"{starved.use_gets:.0f}m: use stops at what others leave, so it understates the need"
        if starved.use < (starved.request or 0)
        else f"a recommendation from use (VPA: 90th percentile and 15 %) is {starved.use}m"
    )
    if subject.listed:
        yield consequences.qos_text(subject, consequences.qos(subject, after))
        yield from consequences.utilisation(subject, after.request, rates.used or 0.0, gets)
