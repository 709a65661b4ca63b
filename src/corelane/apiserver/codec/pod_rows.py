"""Pods for a Table, decoded as far as its cells need them: a list of 2,000 is wanted every few seconds.

What is left out is most of a pod. The metadata, which rows carry whole, stays text.
"""

from collections.abc import Iterable
from typing import Any, TypedDict

import msgspec

from corelane.apiserver.stored_objects import Object, StoredObject


class _Metadata(TypedDict, total=False):
    name: str
    creationTimestamp: str | None
    deletionTimestamp: str | None


class _Container(TypedDict, total=False):
    name: str
    restartPolicy: str


class _Gate(TypedDict, total=False):
    conditionType: str


class _Spec(TypedDict, total=False):
    containers: list[_Container]
    initContainers: list[_Container] | None
    readinessGates: list[_Gate] | None
    nodeName: str


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _Ended(TypedDict, total=False):
    reason: str
    signal: int
    exitCode: int
    finishedAt: str | None


class _State(TypedDict, total=False):
    waiting: _Condition | None
    running: dict[str, Any] | None
    terminated: _Ended | None


class _ContainerStatus(TypedDict, total=False):
    name: str
    ready: bool
    started: bool | None
    restartCount: int
    state: _State | None
    lastState: _State | None


class _Address(TypedDict, total=False):
    ip: str


class _Status(TypedDict, total=False):
    phase: str
    reason: str
    nominatedNodeName: str
    podIPs: list[_Address] | None
    conditions: list[_Condition] | None
    initContainerStatuses: list[_ContainerStatus] | None
    containerStatuses: list[_ContainerStatus] | None


class _Pod(TypedDict, total=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Whole(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_pod = msgspec.json.Decoder(_Pod).decode
_metadata = msgspec.json.Decoder(_Whole).decode


def read(records: Iterable[StoredObject]) -> list[tuple[Object, msgspec.Raw]]:
    """Return each pod as its cells need it, and its metadata as text.

    Raises msgspec.ValidationError for a pod with a value of another type than these.
    """
    return [(_pod(record.value), _metadata(record.value).metadata) for record in records]  # type: ignore[misc]
