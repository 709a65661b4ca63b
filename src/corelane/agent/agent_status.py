"""The status document of an agent: plain JSON values with stable keys, whether it runs or left its files."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from corelane import __version__
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.modes import Mode
from corelane.agent.allocation.outbox import unlisted_text
from corelane.agent.allocation.records import NOT_LISTED, RunCPUs
from corelane.agent.kubelet.kubelet_sources import KubeletFacts
from corelane.agent.publication.write_queue import QueueState
from corelane.node.ledger import NodeState
from corelane.reasons import sentence
from corelane.runtime.base import Runtime
from corelane.runtime.nri.connection import ConnectionStatus


def document(node: str, **parts: Any) -> dict[str, Any]:
    """Return a whole document; parts that are not given are those of an agent that does not run.

    Times are in Unix seconds, durations in seconds.
    """
    return {
        "node": node,
        "version": __version__,
        "running": False,
        "fault": "",
        "settingsFault": "",
        "startedAt": 0.0,
        "policy": "",
        "mode": None,
        "kubelet": None,
        "runtime": None,
        "nri": None,
        "sources": [],
        "writes": [],
        "ledger": {"path": "", "generation": 0, "fault": "", "since": 0.0, "held": 0},
        "containers": {},
        "reconcile": {"period": 0.0, "at": 0.0, "seconds": 0.0},
        "drift": {"count": 0, "lastAt": 0.0, "last": ""},
        "overlap": {"count": 0, "p99": 0.0, "longest": 0.0},
        "narrowed": [],
        "notPinned": [],
        "podsWithoutRoom": [],
        "podsNotListed": [],
    } | parts


def phases(ledger: NodeState) -> dict[str, int]:
    """Return the number of containers with CPUs of their own by phase."""
    return dict(Counter(entry.phase.value for entry in ledger.entries.values() if entry.cpus))


def of_mode(mode: Mode) -> dict[str, Any]:
    """Return what is allowed, and why."""
    return {
        "name": mode.name.value,
        "reasons": [sentence(reason) for reason in mode.reasons],
        "codes": [reason.code.value for reason in mode.reasons],
        "allocates": mode.allocates,
        "writesCPUs": mode.writes_cpus.value,
        "writesMems": mode.writes_mems,
    }


def of_runtime(
    runtime: Runtime, version: str, endpoint: str, *, events: bool, unrecorded: int
) -> dict[str, Any]:
    """Return which runtime runs the containers; `events`: whether it reports starts and ends now.

    `unrecorded` containers have changes in their cgroup that the runtime's record lacks.
    """
    return {
        "name": runtime.name,
        "version": version,
        "endpoint": endpoint,
        "enforcement": runtime.enforcement,
        "notice": runtime.notice,
        "events": events,
        "unrecorded": unrecorded,
    }


def of_kubelet(address: str, facts: KubeletFacts, allocations_from: str) -> dict[str, Any]:
    """Return what the kubelet says; its CPU allocations are known from the source named."""
    policies = facts.policies
    return {
        "address": address,
        "cpuManagerPolicy": policies.answer or policies.file or policies.listed,
        "memoryManagerPolicy": policies.memory,
        "topologyManagerPolicy": facts.configuration.topology_manager_policy if facts.configuration else "",
        "fault": facts.configuration_fault,
        "allocationsFrom": allocations_from,
    }


def of_nri(socket: str, status: ConnectionStatus | None) -> dict[str, Any]:
    """Return the state of the NRI plugin; `status` None where NRI is not used."""
    if status is None:
        return {"connected": False, "why": "off", "socket": "", "answers": {}, "slowest": 0.0}
    connected = status.state == "synchronized"
    return {
        "connected": connected,
        "why": "" if connected else " ".join(filter(None, (status.state, status.detail))),
        "socket": socket,
        "answers": dict(status.outcomes),
        "slowest": status.slowest_seconds,
    }


def of_queues(states: Iterable[QueueState], now: float, since: float) -> list[dict[str, Any]]:
    """Return the states of queues of writes, which work since `since` unless they fail."""
    return [
        {
            "name": state.name,
            "state": "failing" if state.failing_for else "ok",
            "since": now - state.failing_for if state.failing_for else since,
            "error": state.last_error,
            "retries": state.waiting,
            "failures": state.dropped,
            "detail": f"{state.written} written, {state.waiting} waiting"
            + (f", {state.obsolete} obsolete" if state.obsolete else "")
            + (f", {state.dropped} dropped" if state.dropped else ""),
        }
        for state in states
    ]


def of_allocation(allocation: Allocation, runs: Iterable[RunCPUs]) -> dict[str, Any]:
    """Return counts of containers, those whose CPUs could not be applied, and pods without room."""
    runs = list(runs)
    return {
        "containers": dict(Counter(map(of_run, runs))),
        "notPinned": [
            {
                "pod": allocation.pods[run.uid].pod.key,
                "container": run.container,
                "cpus": str(target.cpus) if (target := allocation.target(run.uid, run.container)) else "",
                "allowed": str(run.seen),
                "message": run.fault,
            }
            for run in runs
            if run.fault and run.uid in allocation.pods
        ],
        "podsWithoutRoom": [
            {"pod": pod.pod.key, "reason": pod.unplaced.reason, "message": pod.unplaced.message}
            for pod in allocation.pods.values()
            if pod.unplaced and pod.unplaced is not NOT_LISTED
        ],
        "podsNotListed": [
            {"pod": unlisted_text(pod), "uid": pod.uid, "since": pod.held_at}
            for pod in allocation.pods.values()
            if pod.unplaced is NOT_LISTED
        ],
    }


def of_run(run: RunCPUs) -> str:
    """Return how far a container's CPUs are applied, in a word."""
    if run.pending is not None:
        return "pending"
    if run.drifted:
        return "drifted"
    return "confirmed" if run.confirmed else "unconfirmed"
