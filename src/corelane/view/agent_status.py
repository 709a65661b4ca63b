"""The status of one node's agent as text: what it may do and why, what it reads, what it writes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

_MOST_PODS = 20


def show(status: Mapping[str, Any], to: Console, now: float | None = None) -> None:
    """Print a status document, what is wrong first; `now` is in Unix seconds."""
    at = time.time() if now is None else now
    problems = list(_problems(status, at))
    tables.pairs(f"Agent of node {status['node']}", _summary(status, at, len(problems)), to)
    if problems:
        tables.pairs("Problems", problems, to)
    tables.pairs("Details", _details(status, at), to)
    _parts("Sources", status["sources"], to, at)
    _parts("Writes to the API server", status["writes"], to, at)
    if narrowed := status.get("narrowed"):
        columns = ("CONTAINER", "CPUS", "USED", "NARROWED TASKS")
        rows = [
            (each["container"], each["cpus"], each["used"], f"{each['tasks']} of {each['sampled']}")
            for each in narrowed[:_MOST_PODS]
        ]
        tables.show("Programs that use part of their container's CPUs", columns, rows, to)
    if pods := status["podsWithoutRoom"]:
        more = f" ({len(pods) - _MOST_PODS} more)" if len(pods) > _MOST_PODS else ""
        messages = [(pod["pod"], pod["message"]) for pod in pods[:_MOST_PODS]]
        tables.pairs(f"Pods without room for exclusive CPUs{more}", messages, to)


def _summary(status: Mapping[str, Any], at: float, problems: int) -> Iterator[tuple[str, str]]:
    running, mode = status["running"], status["mode"]
    how = f"running for {age(at - status['startedAt'])}" if running else "not running; saved state"
    yield "agent", ": ".join(filter(None, (how, status.get("fault"))))
    if running:
        yield "problems", f"{problems}, see below" if problems else "none"
    if mode:
        yield "mode", f"{mode['name']}; writes cpusets of {mode['writesCPUs']}"
        for reason in mode["reasons"]:
            yield "", reason
    elif running:
        yield "mode", "not decided yet"
    counts = [f"{count} {state}" for state, count in status["containers"].items() if count]
    yield "containers", ", ".join(counts) or "none"
    if pods := status["podsWithoutRoom"]:
        yield (
            "without room",
            f"{len(pods)} {'pod' if len(pods) == 1 else 'pods'} in the shared pool, see below",
        )


def _problems(status: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
    """Yield everything that fails, with the whole error."""
    ledger = status["ledger"]
    if ledger["fault"] and status["running"]:
        held = f"; {ledger['held']} changes of containers wait" if ledger["held"] else ""
        since = f"not written for {age(at - ledger['since'])}"
        yield "ledger", f"{since}, no container is moved: {ledger['fault']}{held}"
    elif ledger["fault"]:
        yield "ledger", f"cannot be read: {ledger['fault']}"
    if fault := status.get("settingsFault"):
        yield "settings", fault
    for run in status.get("notPinned", [])[:_MOST_PODS]:
        text = f"on CPUs {run['allowed']}, allocated {run['cpus']}: {run['message']}"
        yield f"{run['pod']}/{run['container']}", text
    for pod in status.get("podsNotListed", [])[:_MOST_PODS]:
        text = "listed neither by the kubelet nor by the API server; admitted once it is"
        yield pod["pod"], f"{text} (for {age(at - pod['since'])})"
    for part in _ordered(status["sources"]):
        if part["state"] == "failing":
            times = "1 failure" if part["retries"] == 1 else f"{part['retries']} failures in a row"
            yield part["name"], f"fails for {age(at - part['since'])}, {times}: {part['error']}"
    for part in status["writes"]:
        if part["state"] == "failing":
            waiting = f"{part['retries']} {'write waits' if part['retries'] == 1 else 'writes wait'}"
            text = f"fail for {age(at - part['since'])}, {waiting}: {part['error']}"
            yield f"writes: {part['name']}", text


def _details(status: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
    ledger = status["ledger"]
    written = "" if ledger["fault"] else ", written"
    yield "ledger", f"{ledger['path']}, generation {ledger['generation']}{written}"
    if kubelet := status["kubelet"]:
        policies = [f"CPU manager policy {kubelet['cpuManagerPolicy'] or 'unknown'}"]
        if kubelet["memoryManagerPolicy"]:
            policies.append(f"memory manager policy {kubelet['memoryManagerPolicy']}")
        if kubelet.get("allocationsFrom"):
            policies.append(f"CPU allocations by {kubelet['allocationsFrom']}")
        yield "kubelet", f"{kubelet['address']}: {', '.join(policies)}"
    if runtime := status["runtime"]:
        version = " ".join(filter(None, (runtime["name"], runtime["version"])))
        yield "runtime", f"{version} at {runtime['endpoint']}; {runtime['enforcement']}"
        if runtime["notice"]:
            yield "", runtime["notice"]
        if late := runtime.get("unrecorded"):
            yield "", f"its record of {late} containers lacks a change that the kernel has"
    if nri := status["nri"]:
        yield "NRI", "connected" if nri["connected"] else f"not connected: {nri['why']}"
    if status["running"]:
        reconcile, drift, overlap = status["reconcile"], status["drift"], status["overlap"]
        last = f", last {age(at - drift['lastAt'])} ago: {drift['last']}" if drift["count"] else ""
        yield "drift", f"{drift['count']} found{last}"
        if reconcile["at"]:
            took = f"{reconcile['seconds'] * 1e3:.1f} ms, {age(at - reconcile['at'])} ago"
            yield "reconcile", f"every {reconcile['period']:g} s; last took {took}"
        if overlap["count"]:
            numbers = f"{overlap['count']} starts, 99 % under {overlap['p99'] * 1e3:.0f} ms"
            yield "start to pinned", f"{numbers}, longest {overlap['longest'] * 1e3:.0f} ms"


def _ordered(parts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return parts with those first that fail or never worked."""
    return sorted(parts, key=lambda part: ("failing", "starting", "ok").index(part["state"]))


def _parts(title: str, parts: Iterable[Mapping[str, Any]], to: Console, at: float) -> None:
    """One row for each source or queue: works, or fails, and since when. Errors are among the problems."""
    rows = [
        (part["name"], part["state"], age(at - part["since"]), part["detail"]) for part in _ordered(parts)
    ]
    if rows:
        tables.show(title, ("NAME", "STATE", "SINCE", "DETAIL"), rows, to)


def age(seconds: float) -> str:
    """Return a duration in its largest unit, as kubectl does."""
    whole = max(int(seconds), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
