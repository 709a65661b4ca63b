"""The status of one node's agent as text: what it may do and why, what it reads, what it writes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

_MOST_PODS = 20


def show(status: Mapping[str, Any], to: Console, now: float | None = None) -> None:
    """Print a status document; `now` is in Unix seconds."""
    at = time.time() if now is None else now
    tables.show(f"Agent of node {status['node']}", ("", ""), _summary(status, at), to)
    _parts("Sources", status["sources"], to, at)
    _parts("Writes to the API server", status["writes"], to, at)
    if narrowed := status.get("narrowed"):
        columns = ("CONTAINER", "CPUS", "USED", "NARROWED TASKS")
        tables.show("Programs that use part of their container's CPUs", columns, _narrowed(narrowed), to)
    if pods := status["podsWithoutRoom"]:
        rows = [(pod["pod"], pod["message"]) for pod in pods[:_MOST_PODS]]
        more = f" ({len(pods) - _MOST_PODS} more)" if len(pods) > _MOST_PODS else ""
        tables.show(f"Pods without room for exclusive CPUs{more}", ("POD", "WHY"), rows, to)


def _narrowed(containers: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for one in islice(containers, _MOST_PODS):
        yield one["container"], one["cpus"], one["used"], f"{one['tasks']} of {one['sampled']}"


def _summary(status: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
    running = status["running"]
    yield "agent", f"running since {age(at - status['startedAt'])}" if running else "not running; saved state"
    mode = status["mode"]
    if mode:
        yield "mode", "\n".join((mode["name"], *mode["reasons"]))
        yield "writes cpusets of", mode["writesCPUs"]
    yield from _kubelet(status["kubelet"])
    yield from _runtime(status["runtime"], status["nri"])
    yield from _ledger(status["ledger"], at)
    yield "containers", _counts(status["containers"]) or "none"
    if running:
        yield from _repairs(status, at)


def _kubelet(kubelet: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if kubelet:
        policies = [f"CPU manager policy {kubelet['cpuManagerPolicy'] or 'unknown'}"]
        if kubelet["memoryManagerPolicy"]:
            policies.append(f"memory manager policy {kubelet['memoryManagerPolicy']}")
        if kubelet.get("allocationsFrom"):
            policies.append(f"CPU allocations by {kubelet['allocationsFrom']}")
        yield "kubelet", f"{kubelet['address']}: {', '.join(policies)}"


def _runtime(runtime: Mapping[str, Any] | None, nri: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if runtime:
        version = " ".join(filter(None, (runtime["name"], runtime["version"]))) or "not connected yet"
        notice = f"\n{runtime['notice']}" if runtime["notice"] else ""
        late = f"\n{runtime['unrecorded']} containers to be recorded" if runtime.get("unrecorded") else ""
        yield "runtime", f"{version} at {runtime['endpoint']}; {runtime['enforcement']}{notice}{late}"
    if nri:
        yield "NRI", "connected" if nri["connected"] else f"not connected: {nri['why']}"


def _ledger(ledger: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
    where = f"{ledger['path']}, generation {ledger['generation']}"
    if not ledger["fault"]:
        yield "ledger", f"{where}, written"
    else:
        held = f"; {ledger['held']} changes of containers wait" if ledger["held"] else ""
        yield "ledger", f"{where}, NOT written for {age(at - ledger['since'])}: {ledger['fault']}{held}"


def _repairs(status: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
    reconcile, drift, overlap = status["reconcile"], status["drift"], status["overlap"]
    last = f", last {age(at - drift['lastAt'])} ago: {drift['last']}" if drift["count"] else ""
    yield "drift", f"{drift['count']} found{last}"
    if reconcile["at"]:
        took = f"{reconcile['seconds'] * 1e3:.1f} ms, {age(at - reconcile['at'])} ago"
        yield "reconcile", f"every {reconcile['period']:g} s; last took {took}"
    if overlap["count"]:
        numbers = f"{overlap['count']} starts, 99 % under {overlap['p99'] * 1e3:.0f} ms"
        yield "from start to pinned", f"{numbers}, longest {overlap['longest'] * 1e3:.0f} ms"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _parts(title: str, parts: Iterable[Mapping[str, Any]], to: Console, at: float) -> None:
    """One row for each source or queue: works, or fails since when and with which error."""
    rows = [
        (part["name"], part["state"], age(at - part["since"]), _detail(part), str(part["failures"]))
        for part in parts
    ]
    if rows:
        tables.show(title, ("NAME", "STATE", "SINCE", "DETAIL", "FAILURES"), rows, to)


def _detail(part: Mapping[str, Any]) -> str:
    if part["error"]:
        return f"{part['error']} ({part['retries']} retries)"
    return str(part["detail"])


def age(seconds: float) -> str:
    """Return a duration in its largest unit, as kubectl does."""
    whole = max(int(seconds), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
