"""Advice on CPU limits as tables, a paragraph for each workload, and JSON with stable keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from corelane.limits.advice import Advice, Answer, Effect, Fit, Option, Range, Risk, Shape, Tail
from corelane.limits.measure import Level, Rates
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["plain", "show", "sort"]

_LEVELS: Final = tuple(Level)
_ANSWERS: Final = (Answer.CHANGE, Answer.REFUSED, Answer.LEAVE)
_HEADINGS: Final = (
    "WORKLOAD",
    "LIMIT",
    "USED CPUs",
    "THROTTLED ms/s",
    "LOST",
    "COST",
    "ADVICE",
    "THEN ms/s",
    "RISK",
)
_OPTIONS: Final = ("", "OPTION", "THROTTLED ms/s", "USED CPUs", "A STOP ms", "p99 ms", "RISK")
_SHAPES: Final = {
    Shape.BUSY: "threads that keep {cpus:.3g} CPUs busy without a pause",
    Shape.BURSTS: "bursts of {work:.0f} ms of CPU time on {cpus:.3g} CPU{s} at once",
    Shape.REQUESTS: "requests of {work:.3g} ms of CPU time that come at random, for {cpus:.3g} thread{s}",
    Shape.UNFITTED: "nothing that the model knows",
}


def sort(advised: Iterable[Advice]) -> list[Advice]:
    """What is to be changed first, the costliest first of that."""
    return sorted(
        advised,
        key=lambda one: (
            _ANSWERS.index(one.answer),
            -_LEVELS.index(one.level),
            -_throttled(one),
            one.subject.title,
        ),
    )


def _throttled(one: Advice) -> float:
    return (one.evidence.rates.throttled or 0.0) if isinstance(one.evidence.rates, Rates) else 0.0


def show(advised: Sequence[Advice], notes: Iterable[str], to: Console, *, everything: bool) -> None:
    """The table, then every workload that is to be changed with its options and commands.

    `everything` gives commands and consequences of all options, not just of the recommended one.
    """
    tables.show("Advice on CPU limits", _HEADINGS, [_cells(one) for one in advised], to)
    for one in advised:
        if one.answer is Answer.CHANGE:
            _details(one, to, everything=everything)
        elif one.answer is Answer.REFUSED or one.remarks or everything:
            _say(to, f"{one.subject.title}: {one.answer}: {one.why}")
        for remark in one.remarks:
            _say(to, f"  {remark}")
    for note in notes:
        _say(to, f"note: {note}")


def _say(to: Console, text: str) -> None:
    to.print(tables.printable(text), markup=False, soft_wrap=True)


def _cells(one: Advice) -> tuple[str, ...]:
    rates, best = one.evidence.rates, one.best
    if not isinstance(rates, Rates):
        return (one.subject.title, "-", "-", "-", "-", "-", one.answer, "-", "-")
    return (
        one.subject.title,
        "none" if rates.quota.cpus is None else f"{rates.quota.cpus:g}",
        "-" if rates.used is None else f"{rates.used / 1000:.2f}",
        "-" if rates.throttled is None else f"{rates.throttled:.1f}",
        "-" if rates.lost is None else f"{rates.lost:.1%}",
        str(one.level) if one.answer is not Answer.REFUSED else "-",
        str(one.answer) if best is None else best.title,
        "-" if best is None else _range(best.effect.throttled),
        "-" if best is None else str(best.risk.danger),
    )


def _range(one: Range, digits: int = 0, scale: float = 1.0) -> str:
    low, high = (f"{value / scale:.{digits}f}" for value in (one.low, one.high))
    return low if low == high else f"{low}-{high}"


def _details(one: Advice, to: Console, *, everything: bool) -> None:
    _say(to, f"\n{one.subject.title}: {one.why}")
    if one.fit:
        _say(to, f"  {_fitted(one.fit)}{_replicas(one)}")
    if one.options:
        tables.show("", _OPTIONS, [_option(option) for option in one.options], to)
    for option in one.options:
        if option.recommended or everything:
            for line in _lines(option):
                _say(to, line)
    others = [option for option in one.options if not option.recommended]
    if others and not everything:
        for option in others:
            _say(to, f"  {option.title}: {_short(option)}")
        _say(to, "  their patches, and what else they do: --all, or -o json")


def _fitted(fit: Fit) -> str:
    what = _SHAPES[fit.shape].format(cpus=fit.cpus, work=fit.work, s="s" * (fit.cpus != 1))
    if fit.shape is Shape.UNFITTED:
        return f"it looks like {what}: {fit.why}; bounds only"
    if fit.wants > fit.cpus + 0.1:
        what += f" and may want {fit.wants:.3g}, as threads waited for each other or for neighbours"
    shown, measured = f"{fit.modelled:.0f}", f"{fit.throttled:.0f}"
    fits = f"it looks like {what}: the model shows {shown} ms/s throttled, {measured} were measured"
    return f"{fits}; {_rivals(len(fit.rivals))}" if fit.rivals else fits


def _rivals(count: int) -> str:
    what = "another shape fits" if count == 1 else f"{count} other shapes fit"
    return f"{what} as well, so effects are ranges"


def _replicas(one: Advice) -> str:
    if one.evidence.replicas < 2:
        return ""
    others = one.evidence.others
    least = f"{others[-1] if others else 0:.0f}"
    return f"; of {one.evidence.replicas} replicas (down to {least} ms/s) {one.evidence.pod} is the worst"


def _option(one: Option) -> tuple[str, ...]:
    return (
        "->" if one.recommended else "",
        one.title,
        _range(one.effect.throttled),
        _range(one.effect.used, 2, 1000),
        f"at most {one.effect.stop.high:.0f}" if one.effect.stop.high else "none",
        _tail(one.effect.tail),
        str(one.risk.danger),
    )


def _tail(one: Tail | None) -> str:
    if one is None:
        return "not known"
    what = "" if one.of == "latency" else " delay"
    return f"{one.now:.0f} to {_range(one.after)}{what}{' (bounds)' if one.how == 'bounds' else ''}"


def _short(one: Option) -> str:
    return "; ".join(filter(None, [one.deviation and f"deviates: {one.deviation}", f"risk: {one.risk.why}"]))


def _lines(one: Option) -> Iterator[str]:
    yield f"  {one.title}:"
    if one.deviation:
        yield f"    deviates: {one.deviation}"
    yield f"    risk {one.risk.danger}: {one.risk.why}"
    if one.effect.no_tail:
        yield f"    p99: {one.effect.no_tail}"
    for consequence in one.consequences:
        yield f"    {consequence}"
    if one.patch:
        if one.patch.note:
            yield f"    patch: {one.patch.note}"
        yield f"    {one.patch.command or one.patch.text}"


def plain(advised: Iterable[Advice], notes: Iterable[str]) -> dict[str, Any]:
    """JSON: times in milliseconds a second of CPU, ranges as low and high, null where nobody knows."""
    return {"advice": [_plain(one) for one in advised], "notes": list(notes)}


def _plain(one: Advice) -> dict[str, Any]:
    subject, evidence, rates = one.subject, one.evidence, one.evidence.rates
    measured = rates if isinstance(rates, Rates) else Rates(0.0)
    cpus = measured.quota.cpus
    return {
        "kind": subject.kind or None,
        "namespace": subject.namespace or None,
        "name": subject.name or None,
        "container": subject.container or None,
        "replicas": evidence.replicas,
        "pod": evidence.pod or None,
        "node": evidence.node or None,
        "answer": _ANSWER_KEYS[one.answer],
        "why": one.why,
        "cost": None if one.answer is Answer.REFUSED else str(one.level),
        "cpuLimitMillis": None if cpus is None else round(cpus * 1000),
        "cpuRequestMillis": subject.request if subject.known else None,
        "qosClass": str(subject.qos) if subject.known else None,
        "seconds": round(measured.seconds, 3),
        "usedMsPerSecond": _rounded(measured.used),
        "throttledMsPerSecond": _rounded(measured.throttled),
        "lostShare": _rounded(measured.lost, 5),
        "periods": _rounded(measured.periods, 1),
        "throttledPeriods": _rounded(measured.throttled_periods, 1),
        "fit": _fit(one.fit) if one.fit else None,
        "recommended": str(one.best.kind) if one.best else None,
        "options": [_plain_option(option) for option in one.options],
        "remarks": list(one.remarks),
    }


_ANSWER_KEYS: Final = {Answer.CHANGE: "change", Answer.LEAVE: "leave", Answer.REFUSED: "refused"}


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "shape": str(fit.shape),
        "cpus": _rounded(fit.cpus) if fit.cpus != float("inf") else None,
        "wantsCpus": _rounded(fit.wants) if fit.wants else None,
        "burstWorkMs": _rounded(fit.work) if fit.shape is Shape.BURSTS else None,
        "requestWorkMs": _rounded(fit.work) if fit.shape is Shape.REQUESTS else None,
        "rivals": len(fit.rivals),
        "modelledThrottledMsPerSecond": _rounded(fit.modelled) if fit.shape is not Shape.UNFITTED else None,
        "why": fit.why or None,
    }


def _plain_option(one: Option) -> dict[str, Any]:
    return {
        "option": str(one.kind),
        "title": one.title,
        "recommended": one.recommended,
        "deviation": one.deviation or None,
        "effect": _effect(one.effect),
        "risk": _risk(one.risk),
        "consequences": list(one.consequences),
        "patch": one.patch.content if one.patch else None,
        "command": (one.patch.command or None) if one.patch else None,
        "patchNote": (one.patch.note or None) if one.patch else None,
    }


def _effect(one: Effect) -> dict[str, Any]:
    return {
        "throttledMsPerSecond": _two(one.throttled),
        "usedMsPerSecond": _two(one.used),
        "stopMs": _two(one.stop),
        "p99": _p99(one.tail) if one.tail else None,
        "noP99": one.no_tail or None,
    }


def _p99(one: Tail) -> dict[str, Any]:
    return {"of": one.of, "nowMs": _rounded(one.now), "afterMs": _two(one.after), "from": one.how}


def _two(one: Range) -> dict[str, float | None]:
    return {"low": _rounded(one.low), "high": _rounded(one.high)}


def _risk(one: Risk) -> dict[str, Any]:
    return {
        "level": str(one.danger),
        "why": one.why,
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
            for node in one.nodes
        ],
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
