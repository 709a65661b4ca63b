"""Which nodes give no sign of life, and what their objects have to say then. Pure: facts in, changes out.

The rules are those of upstream's node lifecycle controller: a node whose lease was not seen to change for
40 s gets its conditions set to Unknown and the unreachable taints; once its agent reports it ready again,
the taints go. Time is counted from when a change was seen here, so clocks need not agree, and a restart
gives everybody a new start.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node, Taint

GRACE_SECONDS: Final = 40.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
_OURS: Final = (UNREACHABLE, NOT_READY)
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life: what it said, and when it was first seen here."""

    text: str
    at: float


class Signs:
    """When each node was last heard of."""

    def __init__(self) -> None:
        self._seen: dict[str, Sign] = {}

    def note(self, node: str, lease: Lease | None, at: float) -> None:
        """Take in a node's lease as it is now."""
        text = lease.spec.renew_time if lease else ""
        known = self._seen.get(node)
        if known is None or known.text != text:
            self._seen[node] = Sign(text, at)

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget all others."""
        wanted = set(nodes)
        self._seen = {node: sign for node, sign in self._seen.items() if node in wanted}

    def silence(self, node: str, at: float) -> float:
        """Seconds since the last sign; 0 for a node never noted."""
        known = self._seen.get(node)
        return at - known.at if known else 0.0


def is_ready(node: Node) -> str:
    """The status of the node's Ready condition; Unknown where there is none."""
    ready = condition(node.status.conditions, "Ready")
    return ready.status if ready else "Unknown"


def unknown_conditions(node: Node, at: float) -> list[dict[str, Any]] | None:
    """The conditions of a node that went silent, as a strategic merge patch; None if they say so already."""
    if all(_status(node, kind) == "Unknown" for kind in _CONDITIONS):
        return None
    return [_unknown(kind, at) for kind in _CONDITIONS if _status(node, kind) != "Unknown"]


def _status(node: Node, kind: str) -> str:
    found = condition(node.status.conditions, kind)
    return found.status if found else ""


def _unknown(kind: str, at: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": timestamp(at),
    }


def taints(node: Node, ready: str, at: float) -> list[dict[str, str]] | None:
    """All taints that a node of that readiness should have, others' included; None if it has them."""
    key = {"True": "", "False": NOT_READY}.get(ready, UNREACHABLE)
    wanted = [(key, effect) for effect in _EFFECTS] if key else []
    known = {(taint.key, taint.effect) for taint in node.spec.taints if taint.key in _OURS}
    if known == set(wanted):
        return None
    kept = [
        taint for taint in node.spec.taints if taint.key not in _OURS or (taint.key, taint.effect) in wanted
    ]
    new = [Taint(key, "", effect, timestamp(at)) for key, effect in wanted if (key, effect) not in known]
    return [_plain(taint) for taint in (*kept, *new)]


def _plain(taint: Taint) -> dict[str, str]:
    named = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {key: value for key, value in named.items() if value}


def timestamp(at: float) -> str:
    """Unix seconds as Kubernetes writes times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
