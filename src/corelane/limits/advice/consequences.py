"""What a change of resources does besides: to the pod's QoS class, and to an autoscaler's utilisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from corelane.limits.advice.facts import Range, Scaler, Subject
from corelane.workload import QOSClass

__all__ = ["Wanted", "qos", "qos_text", "utilisation"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The container's resources after a change, in milliCPU and bytes; 0 for none.

    `others_complete`: the other containers are given what a Guaranteed pod needs, too.
    """

    request: int
    limit: int
    memory_request: int
    memory_limit: int
    others_complete: bool = False


def qos(subject: Subject, wanted: Wanted) -> QOSClass:
    """The class that the pod will have (upstream's `ComputePodQOS`)."""
    own = wanted.request == wanted.limit > 0 and wanted.memory_request == wanted.memory_limit > 0
    if own and (not subject.incomplete or wanted.others_complete):
        return QOSClass.GUARANTEED
    return QOSClass.BURSTABLE


def qos_text(subject: Subject, after: QOSClass) -> str:
    """What becomes of the class, and what hangs on it."""
    before = subject.qos
    if after is before:
        return f"QoS class stays {before}"
    if after is QOSClass.GUARANTEED:
        return (
            f"QoS class goes from {before} to Guaranteed: the last to be killed when memory runs out, and "
            "whole CPUs are its own where the CPU manager is static"
        )
    if before is QOSClass.GUARANTEED:
        return (
            f"QoS class goes from Guaranteed to {after}: when memory runs out it is no longer among the last "
            "to be killed, though what stays within its memory request is evicted last; no CPUs of its own"
        )
    return f"QoS class goes from {before} to {after}"


def utilisation(subject: Subject, request: int, used: float, after: Range) -> Iterator[str]:
    """What autoscalers will see: use over request. `used` and `after` are the container's, in ms a second."""
    for scaler in subject.scalers:
        yield _scaled(scaler, subject, request, used, after)
    if not subject.scalers and subject.known:
        yield _in_general(subject, request, after)


def _scaled(scaler: Scaler, subject: Subject, request: int, used: float, after: Range) -> str:
    whole = scaler.request_milli if not scaler.container else subject.request
    if not whole:
        return f"{scaler.name} fails: it counts use over requests, and there are none"
    new = whole - subject.request + request
    what = "its part of " if not scaler.container and whole != subject.request else ""
    then = f"{100 * used / whole:.0f} %"
    return (
        f"{scaler.name} (target {scaler.percent} %) sees {what}{then} now, then {_percent(after, new)}"
        f"{_sooner(scaler, after, new)}"
    )


def _percent(after: Range, request: int) -> str:
    low, high = 100 * after.low / request, 100 * after.high / request
    return f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"


def _sooner(scaler: Scaler, after: Range, request: int) -> str:
    if 100 * after.high / request <= scaler.percent:
        return ""
    return ": it adds replicas while this load lasts"


def _in_general(subject: Subject, request: int, after: Range) -> str:
    if not request:
        return "an autoscaler by CPU utilisation would fail: there is no CPU request"
    changed = (
        "" if request == subject.request else f", counted against {request}m instead of {subject.request}m"
    )
    return f"an autoscaler by CPU utilisation would see {_percent(after, request)} of the request{changed}"
