"""A container that gets less CPU time than it needs because of other processes: the request that mends it.

Requests are weights. While all active groups beside it are busy, a container is entitled to the product, over
the levels of its path, of own weight ÷ (own + active weights), times the CPUs that it may use. A larger
request raises the weight of the container, of its pod, and of the kubelet's Burstable group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from corelane.kernel import cfs
from corelane.kernel.cpu_time.competitors import Claim, Competition
from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice import changes, options
from corelane.limits.advice.changes import NewResources, Risk, RiskLevel
from corelane.limits.advice.effects import COLLECT_LATENCY, Fit, LimitChange, Range
from corelane.limits.advice.options import Effect, Option, OptionKind, effect_of
from corelane.limits.advice.subjects import NodeOccupancy, Subject
from corelane.limits.lint import findings
from corelane.limits.measure import Latency, Measurement

_LEAST_MS: Final = 20.0
_PART: Final = 0.1
"""Waits for other processes that count as starvation, as a part of the CPU time that it asked for."""
_CERTAIN: Final = 2.0
"""Standard errors that these waits must exceed."""
_ENTITLED: Final = 0.8
"""The part of its share that it must use for a larger one to help: below, it waits for turns."""
_PAUSED: Final = 0.05
"""Where so many looks find no thread runnable, it keeps up with its work."""
_BUSIEST: Final = 1.5
"""Work that pauses is given so many times what it used: two thirds of the share are used then."""
_HEADROOM: Final = 1.15
"""Work that requests bring is given so many times what it needs: a queue must shrink, too."""
_WIDEST: Final = 2.0
"""A need known less closely than by this factor gives no request."""
_STEP: Final = 10
_VPA_MARGIN, _VPA_LEAST = 1.15, 25
"""VPA's recommender: --recommendation-margin-fraction, --pod-recommendation-min-cpu-millicores."""
_SHARES: Final = 1024 / 1000
_WEIGHT: Final = 10.24
_POD: Final = re.compile(r"(?:.*-)?pod[0-9a-f]|[0-9a-f]{8}-[0-9a-f]{4}-")
_BURSTABLE: Final = re.compile(r"(?:kubepods-)?burstable(?:\.slice)?")


@dataclass(frozen=True, slots=True)
class Loser:
    """A competitor's use now, and its least use after the change, in ms a second.

    `name` is its cgroup, or the pod and container where these are known.
    """

    name: str
    used: float
    after: float


@dataclass(frozen=True, slots=True)
class Starvation:
    """A container's distance from the CPU time that it needs. CPU time in milliCPU, the same as ms a second.

    `waited` is for how long others made it wait, in ms a second; with `at_least` only what is certain.
    `entitled` is what its weight gives it while its competitors are busy. `request` is the one that covers
    `need`; None, with `why`, where there is none. `use` is what a recommendation from use alone would be, and
    `use_gets` what the container would get with it. `weight` is what it weighs with `request` against all of
    its competitors together, where the present weight is 1.
    """

    waited: float
    used: float
    entitled: float
    need: Range
    request: int | None = None
    gets: float = 0.0
    use: int = 0
    use_gets: float = 0.0
    losers: tuple[Loser, ...] = ()
    at_least: bool = False
    why: str = ""
    weight: float = 1.0


Names = Mapping[str, tuple[str, str, str]]
"""Namespace, pod and container by the ids of containers, and (without a container) the UIDs of pods."""
Entitled = Callable[[int], float]
"""From a request in milliCPU to the CPU time that it entitles to."""


def find(measured: Measurement, request: int | None, *, unified: bool) -> Starvation | None:
    """Return what other processes withhold from a container; None where that is little, or unknown.

    `request` is the container's in milliCPU, None where it is unknown; `unified`: cgroup version 2.
    """
    rates, losses, rivals = measured.rates, measured.losses, measured.competition
    if not isinstance(rates, Rates) or rivals is None or not rivals.claims:
        return None
    used = rates.used or 0.0
    # Pressure: `full` is time in which threads wait on a CPU and none of the group runs there, so its own are
    # not the cause. Throttling is part of it, summed over CPUs, so more than that part is taken off.
    stalled = max(0.0, (rates.stalled or 0.0) - (rates.throttled or 0.0) - (rates.above or 0.0))
    waited, error = (losses.neighbours, losses.error) if losses else (stalled, 0.0)
    if waited < max(_LEAST_MS, _CERTAIN * error, _PART * (used + waited)):
        return None
    if request is None:
        if unified:
            return None
        request = round(rivals.weight / _SHARES)
    entitled = _entitlement(rivals.claims, request, max(measured.cpus, 1), unified=unified)
    now = entitled(request)
    need, target = _need(measured, used, waited)
    use = max(_VPA_LEAST, math.ceil(used * _VPA_MARGIN))
    starved = Starvation(
        waited,
        used,
        now,
        need,
        use=use,
        use_gets=min(need.high, entitled(max(use, request))),
        at_least=losses is None,
    )
    if used < _ENTITLED * min(now, need.high) or now >= target:
        return replace(starved, why=_TURNS.format(now=now, used=used))
    if need.high > _WIDEST * need.low:
        text = _UNBOUNDED if math.isinf(need.high) else _UNKNOWN
        return replace(starved, why=text.format(low=need.low, high=need.high))
    new = _smallest(entitled, target, max(request, math.ceil(target)), 1000 * max(measured.cpus, 1))
    if new is None:
        cpus = "CPU" if measured.cpus <= 1 else f"{measured.cpus} CPUs"
        return replace(starved, why=_ALL.format(high=need.high, cpus=cpus))
    gets = min(need.high, entitled(new))
    return replace(
        starved,
        request=new,
        gets=gets,
        losers=_losers(rivals, used, gets),
        weight=_against(entitled(new), measured.cpus) / _against(now, measured.cpus),
    )


_TURNS: Final = (
    "it uses {used:.0f}m of the {now:.0f}m that its weight entitles it to: a larger request does not help; "
    "exclusive CPUs (an integer request, static CPU manager) do"
)
_UNKNOWN: Final = (
    "it needs between {low:.0f}m and {high:.0f}m, which its counters do not show closer: give --latency FILE "
    "with a line for each request"
)
_UNBOUNDED: Final = (
    "how much more it needs is not in pressure: give --latency FILE with a line for each request of the same "
    "time, or measure on its node with corelane limits watch -o json, and give that file"
)
_ALL: Final = (
    "it needs {high:.0f}m, nearly all of its {cpus}: no weight guarantees that; exclusive CPUs (an "
    "integer request, static CPU manager) do"
)


def _against(entitled: float, cpus: int) -> float:
    """The weight that entitles to this, where that of all others together is 1."""
    return entitled / (1000 * max(cpus, 1) - entitled)


def _need(measured: Measurement, used: float, waited: float) -> tuple[Range, float]:
    """CPU time that it needs, and what it should be entitled to.

    By its requests, sent and answered, or else between what it used and what it asked for. Work that pauses
    keeps up: it needs what it used, and a margin against waiting. Pressure does not say how many threads
    wait, so then the need has no upper end.
    """
    log = measured.latency.log if measured.latency else None
    if log is not None and (answered := log.answered):
        need = used * len(log.moments) / answered
        return Range(need, need), _HEADROOM * need
    if measured.losses is None:
        return Range(used, math.inf), math.inf
    asked, paused = used + waited, measured.losses.paused
    if paused is not None and paused >= _PAUSED:
        asked = min(asked, _BUSIEST * used)
    return Range(used, asked), asked


def _entitlement(claims: tuple[Claim, ...], request: int, cpus: int, *, unified: bool) -> Entitled:
    def entitled(new: int) -> float:
        share = 1.0
        for number, claim in enumerate(claims):
            own = claim.own + _gain(number, claim, request, new, unified=unified)
            share *= own / (own + claim.active)
        return 1000 * cpus * share

    return entitled


def _gain(number: int, claim: Claim, request: int, new: int, *, unified: bool) -> float:
    """By how much a group's weight grows, in cpu.shares."""
    name = PurePosixPath(claim.path).name
    if number and not (number == 1 and _POD.match(name)) and not _BURSTABLE.fullmatch(name):
        return 0.0
    before, after = cfs.shares(request), cfs.shares(new)
    if not unified:
        return float(after - before)
    runtimes = not number and abs(cfs.container_weight(before) * _WEIGHT - claim.own) <= _WEIGHT
    formula = cfs.container_weight if runtimes else cfs.pod_weight
    return (formula(after) - formula(before)) * _WEIGHT


def _smallest(entitled: Entitled, need: float, least: int, most: int) -> int | None:
    """The smallest request, in steps of 10m, that entitles to what is needed; None if none does."""
    low, high = math.ceil(least / _STEP), most // _STEP
    if low > high or entitled(high * _STEP) < need:
        return None
    while low < high:
        middle = (low + high) // 2
        if entitled(middle * _STEP) >= need:
            high = middle
        else:
            low = middle + 1
    return low * _STEP


def _losers(rivals: Competition, used: float, gets: float) -> tuple[Loser, ...]:
    """Return the competitors that give way, in proportion to their use, those of largest use first."""
    more, total = max(0.0, gets - used), rivals.used
    if not total:
        return ()
    return tuple(
        Loser(each.title, each.used, max(0.0, each.used - more * each.used / total))
        for each in rivals.noticed
    )


def named(starved: Starvation, names: Names) -> Starvation:
    """Call competitors by their pods and containers, where their ids are known."""
    losers = []
    for loser in starved.losers:
        ids = re.findall(r"[0-9a-f]{64}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}", loser.name)
        titles = (names.get(each) or names.get(each.replace("_", "-")) for each in reversed(ids))
        name = next(("/".join(filter(None, name)) for name in titles if name), loser.name)
        losers.append(replace(loser, name=name))
    return replace(starved, losers=tuple(losers))


_NAMED: Final = 3


def why(starved: Starvation) -> str:
    """Say in one sentence what holds the container back."""
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
    amounts: dict[str, Any] = {"requests": {"cpu": findings.cpus(new)}}
    if limit != subject.limit:
        amounts["limits"] = {"cpu": findings.cpus(limit)}
    after = NewResources(new, limit, subject.memory_request, subject.memory_limit)
    gets = Range(min(starved.gets, starved.need.low), starved.gets)
    both = " and limit" if limit != subject.limit else ""
    same = subject.listed and changes.qos_after(subject, after) is subject.qos
    return Option(
        OptionKind.RAISE_REQUEST,
        f"raise the request{both} to {findings.cpus(new)}",
        replace(_effect(fit, starved, limit - subject.limit, measured.latency), used=gets),
        _risk(subject, new, nodes),
        tuple(_consequences(subject, starved, after, gets, rates)),
        changes.container_patch(subject, {"resources": amounts}, resize=same),
        request=new,
    )


def exclusive(subject: Subject, starved: Starvation, nodes: Sequence[NodeOccupancy]) -> Option | None:
    """Give the container exclusive CPUs, which no other process uses; None where it cannot have any."""
    if subject.exclusive or subject.init or subject.pod_level or not subject.listed:
        return None
    need = starved.need.low if math.isinf(starved.need.high) else starved.need.high
    count = max(math.ceil(need / 1000 - 0.05), 1)
    none = Range(0.0, 0.0)
    low, high = (min(each, 1000.0 * count) for each in (starved.need.low, starved.need.high))
    effect = Effect(none, Range(low, high), none, no_tail=COLLECT_LATENCY)
    return options.exclusive(subject, count, effect, nodes)


def _effect(fit: Fit | None, starved: Starvation, raised: int, latency: Latency | None) -> Effect:
    """Forecast the larger weight, and a limit that is `raised` by so many milliCPU with the request."""
    none = Range(0.0, 0.0)
    if fit is None:
        return Effect(none, none, none, no_tail=COLLECT_LATENCY)
    limit = None if fit.now.limit is None else fit.now.limit + raised / 1000
    return effect_of(LimitChange(limit, fit.burst, weight=starved.weight), fit, latency)


def _risk(subject: Subject, new: int, nodes: Sequence[NodeOccupancy]) -> Risk:
    """Whether its nodes can guarantee the request."""
    sized = [node for node in nodes if node.milli]
    if not sized:
        return changes.unlimited_risk(nodes, None)
    if full := changes.crowded_risk(sized, new, subject.request):
        return replace(full, why=f"{full.why}: not guaranteed while all pods are busy")
    node = max(sized, key=lambda each: changes.requested_milli(each, new, subject.request) / each.milli)
    requested = changes.requested_milli(node, new, subject.request)
    amounts = f"{requested / 1000:g} of {node.milli / 1000:g} CPUs requested then"
    text = f"{changes.node_title(node.name)}: {amounts}, so it is guaranteed"
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
        yield changes.qos_text(subject, changes.qos_after(subject, after))
        yield from changes.utilisation(subject, after.request, rates.used or 0.0, gets)
