"""kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1) as plain values.

Go reads member names in any case, and writes them as the fields are called; so does this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from corelane.kube.decode import Malformed, decode_object
from corelane.kube.pod import Pod

T = TypeVar("T")
_NOTHING: Final = (b"", b"null")


class ExtenderError(ValueError):
    """A request that is not the protocol's; the message names the member and the remedy."""


@dataclass(frozen=True, slots=True)
class NodesArgs:
    """A pod and the nodes in question; `raw` has whole Node objects where they were sent so."""

    pod: Pod
    names: tuple[str, ...]
    raw: Mapping[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class BindArgs:
    """A pod to be bound to a node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """A pod, and by node the UIDs of the pods to be evicted and how many budgets that violates."""

    pod: Pod
    victims: Mapping[str, tuple[tuple[str, ...], int]]


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def nodes_args(body: bytes) -> NodesArgs:
    """Read ExtenderArgs. Raises ExtenderError."""
    members = _members(body)
    pod = _pod(members)
    if _given(members, "nodenames"):
        return NodesArgs(pod, tuple(_member(members, "NodeNames", list[str])))
    if not _given(members, "nodes"):
        raise ExtenderError("neither NodeNames nor Nodes is set; set nodeCacheCapable: true for the extender")
    items = _member(members, "Nodes", _NodeList).items or []
    raw = {_decoded("Nodes.items", one, _Named).metadata.name: one for one in items}
    return NodesArgs(pod, tuple(raw), raw)


def bind_args(body: bytes) -> BindArgs:
    """Read ExtenderBindingArgs. Raises ExtenderError."""
    members = _members(body)
    names = ("PodNamespace", "PodName", "PodUID", "Node")
    values = [_member(members, name, str) if _given(members, name.lower()) else "" for name in names]
    if missing := [name for name, value in zip(names, values, strict=True) if not value]:
        raise ExtenderError(f"{missing[0]}: missing; a binding names pod, namespace, UID and node")
    return BindArgs(*values)


def preempt_args(body: bytes) -> PreemptArgs:
    """Read ExtenderPreemptionArgs, with whole victims or their UIDs. Raises ExtenderError."""
    members = _members(body)
    meta = _given(members, "nodenametometavictims")
    key = "NodeNameToMetaVictims" if meta else "NodeNameToVictims"
    found: dict[str, Any] = _member(members, key, dict[str, Any]) if _given(members, key.lower()) else {}
    return PreemptArgs(_pod(members), {node: _victims(key, node, value) for node, value in found.items()})


def _victims(key: str, node: str, value: Any) -> tuple[tuple[str, ...], int]:
    try:
        members = {name.lower(): member for name, member in (value or {}).items()}
        pods = [{name.lower(): member for name, member in pod.items()} for pod in members.get("pods") or []]
        uids = tuple(str(pod.get("uid") or pod["metadata"]["uid"]) for pod in pods)
        return uids, int(members.get("numpdbviolations") or 0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExtenderError(f"{key}.{node}: victims cannot be read: {error!r}") from error


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    members = _decoded("body", body, dict[str, msgspec.Raw])
    return {name.lower(): value for name, value in members.items()}


def _given(members: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in members and bytes(members[key]).strip() not in _NOTHING


def _pod(members: Mapping[str, msgspec.Raw]) -> Pod:
    if not _given(members, "pod"):
        raise ExtenderError("Pod: missing; send the pod to be scheduled")
    pod = decode_object(Pod, members["pod"])
    if isinstance(pod, Malformed):
        raise ExtenderError(f"Pod: not what kube-scheduler sends: {pod.error}")
    if not pod.metadata.uid or not pod.metadata.name:
        raise ExtenderError("Pod.metadata: name or uid is missing")
    return pod


def _member(members: Mapping[str, msgspec.Raw], name: str, kind: Any) -> Any:
    return _decoded(name, members[name.lower()], kind)


def _decoded(where: str, data: Any, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ExtenderError(f"{where}: not what kube-scheduler sends: {error}") from error
