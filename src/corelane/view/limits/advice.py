"""Advice on CPU limits as tables, a paragraph for each container, and JSON with stable keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice.changes import Risk
from corelane.limits.advice.effects import Fit, LoadShape, Range, Shape
from corelane.limits.advice.judgement import Advice, Answer
from corelane.limits.advice.options import Effect, Option
from corelane.limits.advice.starvation import Starvation
from corelane.limits.advice.subjects import Subject
from corelane.limits.measure import CostLevel
from corelane.view import tables
from corelane.view.limits import watch as limits_watch
from corelane.view.limits.watch import rounded

if TYPE_CHECKING:
    from rich.console import Console

_LEVELS: Final = tuple(CostLevel)
_ANSWERS: Final = (Answer.CHANGE, Answer.REFUSED, Answer.LEAVE)
_HEADINGS: Final = (
    "CONTAINER",
    "LIMIT",
    "USED CPUs",
    "THROTTLED ms/s",
    "LOST",
    "COST",
    "ADVICE",
    "AFTER ms/s",
    "RISK",
)
_DROPPABLE: Final = ("LOST", "USED CPUs", "AFTER ms/s", "RISK", "LIMIT")
_OPTIONS: Final = ("", "OPTION", "THROTTLED ms/s", "USED CPUs", "STOP ms", "p99 ms", "RISK")
_SHAPES: Final = {
    LoadShape.REQUESTS: "requests of {work:.3g} ms of CPU time for {threads} thread{s}{batch}",
    LoadShape.CLIENTS: "{clients} client{cs} that wait for answers of {work:.3g} ms of CPU time from "
    "{threads} thread{s}",
    LoadShape.SHARED: "requests of {work:.3g} ms of CPU time, each shared by {threads} thread{s}{batch}",
    LoadShape.SHARED_CLIENTS: "{clients} client{cs} that wait for answers of {work:.3g} ms of CPU time, each "
    "shared by {threads} thread{s}",
}


def sort(advised: Iterable[Advice]) -> list[Advice]:
    """Sort containers to change first, the costliest first of these."""
    return sorted(
        advised,
        key=lambda advice: (
            _ANSWERS.index(advice.answer),
            -_LEVELS.index(advice.level),
            -_throttled(advice),
            _title(advice.subject),
        ),
    )


def _title(subject: Subject) -> str:
    where = "/".join(filter(None, (subject.namespace, subject.name)))
    owner = f"{subject.kind} {where}" if subject.kind else where
    return f"{owner}/{subject.container}" if owner else subject.container


def _throttled(advice: Advice) -> float:
    return (advice.measured.rates.throttled or 0.0) if isinstance(advice.measured.rates, Rates) else 0.0


def show(advised: Sequence[Advice], notes: Iterable[str], to: Console, *, everything: bool) -> None:
    """Print the table, then every container to change with its options and commands.

    `everything` prints commands and consequences of all options, not just of the recommended one.
    """
    tables.show("Advice on CPU limits", _HEADINGS, [_cells(advice) for advice in advised], to, _DROPPABLE)
    for advice in advised:
        if advice.answer is Answer.CHANGE:
            _details(advice, to, everything=everything)
        elif advice.answer is Answer.REFUSED or advice.starved or advice.remarks or everything:
            _say(to, f"{_title(advice.subject)}: {advice.answer}: {advice.why}")
            _held_back(advice, to)
        for remark in advice.remarks:
            _say(to, f"  {remark}")
    for note in notes:
        _say(to, f"note: {note}")


def _say(to: Console, text: str) -> None:
    to.print(tables.printable(text), markup=False, soft_wrap=True)


def _cells(advice: Advice) -> tuple[str, ...]:
    rates, best = advice.measured.rates, advice.best
    if not isinstance(rates, Rates):
        return (_title(advice.subject), "-", "-", "-", "-", "-", advice.answer, "-", "-")
    return (
        _title(advice.subject),
        "none" if rates.quota.cpus is None else f"{rates.quota.cpus:g}",
        "-" if rates.used is None else f"{rates.used / 1000:.2f}",
        "-" if rates.throttled is None else f"{rates.throttled:.1f}",
        "-" if rates.lost is None else f"{rates.lost:.1%}",
        str(advice.level) if advice.answer is not Answer.REFUSED else "-",
        str(advice.answer) if best is None else best.title,
        "-" if best is None else _known(best.effect.throttled),
        "-" if best is None else str(best.risk.level),
    )


def _range(span: Range, digits: int = 0, scale: float = 1.0) -> str:
    low, high = (f"{value / scale:.{digits}f}" for value in (span.low, span.high))
    return low if low == high else f"{low}-{high}"


def _known(span: Range | None) -> str:
    return "unknown" if span is None else _range(span)


def _details(advice: Advice, to: Console, *, everything: bool) -> None:
    _say(to, f"\n{_title(advice.subject)}: {advice.why}")
    _held_back(advice, to)
    replicas, throttled = advice.measured.replicas, advice.measured.throttled_replicas
    least = f"least: {throttled[-1] if throttled else 0:.0f} ms/s"
    worst = f"; {advice.measured.pod} is the worst of {replicas} replicas ({least})" if replicas > 1 else ""
    if advice.fit:
        _say(to, f"  {_fitted(advice.fit)}{worst}")
    if advice.options:
        rows = [
            (
                "->" if option.recommended else "",
                option.title,
                _known(option.effect.throttled),
                _range(option.effect.used, 2, 1000),
                f"at most {option.effect.stop.high:.0f}" if option.effect.stop.high else "none",
                f"{tail.now:.0f} to {_range(tail.after)}" if (tail := option.effect.tail) else "unknown",
                str(option.risk.level),
            )
            for option in advice.options
        ]
        tables.show("", _OPTIONS, rows, to, ("STOP ms", "USED CPUs"))
    for option in advice.options:
        if option.recommended or everything:
            for line in _lines(option):
                _say(to, line)
    others = [option for option in advice.options if not option.recommended]
    if others and not everything:
        for option in others:
            deviation = f"deviation: {option.deviation}; " if option.deviation else ""
            _say(to, f"  {option.title}: {deviation}risk: {option.risk.why}")
        _say(to, "  patches and consequences of all options: --all, or -o json")


def _held_back(advice: Advice, to: Console) -> None:
    if advice.measured.losses and (text := limits_watch.divided(advice.measured.losses)):
        _say(to, f"  {text}")


def _fitted(fit: Fit) -> str:
    if fit.shape is LoadShape.UNFITTED:
        return f"load: no load shape of the model: {fit.why}"
    if fit.held_back:
        use = f"they use {fit.cpus:.3g} CPUs beside other processes, and up to {fit.wants:.3g} alone"
        return f"load: threads that never pause: {use}"
    what = f"threads that keep {fit.cpus:.3g} CPUs busy without a pause"
    if fit.likeliest:
        what = _shape(fit.likeliest)
    elif fit.wants > fit.cpus + 0.1:
        what += f" (up to {fit.wants:.3g}: threads waited for each other or for other processes)"
    shown, measured = f"{fit.modelled:.0f}", f"{fit.throttled:.0f}"
    fits = f"load: {what}; throttled {shown} ms/s in the model, {measured} measured"
    if not fit.rivals:
        return fits
    others = "another load explains" if fit.rivals == 1 else f"{fit.rivals} other loads explain"
    return f"{fits}; {others} the measurement as well, so effects are ranges"


def _shape(shape: Shape) -> str:
    what = _SHAPES[shape.kind].format(
        work=shape.work,
        threads=shape.threads,
        s="s" * (shape.threads != 1),
        batch=f" in batches of {shape.batch}" if shape.batch > 1 else "",
        clients=shape.clients,
        cs="s" * (shape.clients != 1),
    )
    if shape.background:
        what += f"; {shape.background:.3g} ms of other work every {shape.background_every:.0f} ms"
    return f"{what}; busy neighbours" if shape.weight else what


def _lines(option: Option) -> Iterator[str]:
    yield f"  {option.title}:"
    if option.deviation:
        yield f"    deviation: {option.deviation}"
    yield f"    risk {option.risk.level}: {option.risk.why}"
    if option.effect.no_throttled:
        yield f"    throttled: {option.effect.no_throttled}"
    if option.effect.no_tail:
        yield f"    p99: {option.effect.no_tail}"
    for consequence in option.consequences:
        yield f"    {consequence}"
    if option.patch:
        if option.patch.note:
            yield f"    patch: {option.patch.note}"
        yield f"    {option.patch.command or option.patch.text}"


def plain(advised: Iterable[Advice], notes: Iterable[str]) -> dict[str, Any]:
    """JSON: times in milliseconds a second of CPU, ranges as low and high, null where unknown."""
    return {"advice": [_plain(advice) for advice in advised], "notes": list(notes)}


def _plain(advice: Advice) -> dict[str, Any]:
    subject, replica, rates = advice.subject, advice.measured, advice.measured.rates
    measured = rates if isinstance(rates, Rates) else Rates(0.0)
    cpus = measured.quota.cpus
    return {
        "kind": subject.kind or None,
        "namespace": subject.namespace or None,
        "name": subject.name or None,
        "container": subject.container or None,
        "replicas": replica.replicas,
        "pod": replica.pod or None,
        "node": replica.node or None,
        "answer": _ANSWER_KEYS[advice.answer],
        "why": advice.why,
        "cost": None if advice.answer is Answer.REFUSED else str(advice.level),
        "cpuLimitMillis": None if cpus is None else round(cpus * 1000),
        "cpuRequestMillis": subject.request if subject.listed else None,
        "qosClass": str(subject.qos) if subject.listed else None,
        "seconds": round(measured.seconds, 3),
        "usedMsPerSecond": rounded(measured.used),
        "throttledMsPerSecond": rounded(measured.throttled),
        "lostShare": rounded(measured.lost, 5),
        "lostTo": limits_watch.plain_losses(replica.losses),
        "competition": limits_watch.plain_competition(replica.competition),
        "starvation": _starvation(advice.starved) if advice.starved else None,
        "periods": rounded(measured.periods, 1),
        "throttledPeriods": rounded(measured.throttled_periods, 1),
        "fit": _fit(advice.fit) if advice.fit else None,
        "recommended": str(advice.best.kind) if advice.best else None,
        "options": [_plain_option(option) for option in advice.options],
        "remarks": list(advice.remarks),
    }


def _starvation(starved: Starvation) -> dict[str, Any]:
    """CPU time in milliCPU, the same as milliseconds a second."""
    return {
        "waitedMsPerSecond": rounded(starved.waited),
        "waitedIsLeast": starved.at_least,
        "usedMillis": rounded(starved.used),
        "entitledMillis": rounded(starved.entitled),
        "neededMillis": _two(starved.need),
        "requestMillis": starved.request,
        "getsMillis": rounded(starved.gets),
        "fromUseMillis": starved.use,
        "fromUseGetsMillis": rounded(starved.use_gets),
        "giveWay": [
            {"group": each.name, "usedMillis": rounded(each.used), "afterMillis": rounded(each.after)}
            for each in starved.losers
        ],
        "why": starved.why or None,
    }


_ANSWER_KEYS: Final = {Answer.CHANGE: "change", Answer.LEAVE: "leave", Answer.REFUSED: "refused"}


def _fit(fit: Fit) -> dict[str, Any]:
    shape = fit.likeliest
    return {
        "shape": str(fit.shape),
        "cpus": rounded(fit.cpus) if fit.cpus != float("inf") else None,
        "wantsCpus": rounded(fit.wants) if fit.wants else None,
        "requestWorkMs": rounded(shape.work) if shape else None,
        "threads": shape.threads if shape else None,
        "clients": shape.clients or None if shape else None,
        "backgroundMs": rounded(shape.background) if shape and shape.background else None,
        "neighbours": bool(shape.weight) if shape else fit.held_back or None,
        "rivals": fit.rivals,
        "modelledThrottledMsPerSecond": rounded(fit.modelled)
        if fit.shape is not LoadShape.UNFITTED and not fit.held_back
        else None,
        "why": fit.why or None,
    }


def _plain_option(option: Option) -> dict[str, Any]:
    return {
        "option": str(option.kind),
        "title": option.title,
        "recommended": option.recommended,
        "deviation": option.deviation or None,
        "effect": _effect(option.effect),
        "risk": _risk(option.risk),
        "consequences": list(option.consequences),
        "patch": option.patch.content if option.patch else None,
        "command": (option.patch.command or None) if option.patch else None,
        "patchNote": (option.patch.note or None) if option.patch else None,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "throttledMsPerSecond": _two(effect.throttled) if effect.throttled else None,
        "noThrottled": effect.no_throttled or None,
        "usedMsPerSecond": _two(effect.used),
        "stopMs": _two(effect.stop),
        "p99": {"nowMs": rounded(tail.now), "afterMs": _two(tail.after)} if (tail := effect.tail) else None,
        "noP99": effect.no_tail or None,
    }


def _two(span: Range) -> dict[str, float | None]:
    return {"low": rounded(span.low), "high": rounded(span.high)}


def _risk(risk: Risk) -> dict[str, Any]:
    return {
        "level": str(risk.level),
        "why": risk.why,
        "nodes": [
            {
                "name": node.name or None,
                "cpuMillis": node.milli,
                "requestedMillis": node.requested,
                "pods": node.pods,
                "withoutRequest": list(node.without_request),
                "short": [
                    {
                        "pod": share.pod.title,
                        "requestMillis": share.pod.request,
                        "guaranteedMillis": round(share.milli, 1),
                    }
                    for share in node.short
                ],
            }
            for node in risk.nodes
        ],
    }
