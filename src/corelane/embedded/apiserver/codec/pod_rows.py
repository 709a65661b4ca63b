"""Rows of a Table of pods, decoded as far as cells need them: a list of 2,000 is asked for every few seconds.

What is left out is most of a pod. The metadata, which rows carry whole, stays text. Most pods are ordinary:
their containers run and are ready, or have no status yet. Their cells are read from structs; any other pod is
decoded whole.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from corelane.embedded.apiserver.print import server_tables
from corelane.embedded.apiserver.print.pod_cells import NONE
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.stored_objects import Object, StoredObject


class _Present(msgspec.Struct, gc=False):
    """Any object, of which nothing is read."""


class _OrdinaryMetadata(msgspec.Struct, gc=False):
    name: str | None = None
    creationTimestamp: str | None = None  # noqa: N815 - names of the wire, here and below
    deletionTimestamp: str | None = None  # noqa: N815


class _OrdinarySpec(msgspec.Struct, gc=False):
    containers: list[_Present] | None = None
    initContainers: list[_Present] | None = None  # noqa: N815
    readinessGates: list[_Present] | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815


class _OrdinaryState(msgspec.Struct, gc=False):
    waiting: _Present | None = None
    running: _Present | None = None
    terminated: _Present | None = None


class _OrdinaryContainer(msgspec.Struct, gc=False):
    ready: bool = False
    restartCount: int = 0  # noqa: N815
    state: _OrdinaryState | None = None
    lastState: _OrdinaryState | None = None  # noqa: N815

    @property
    def runs(self) -> bool:
        """Whether it runs and is ready, and no earlier run is reported."""
        now, last = self.state, self.lastState
        if not self.ready or now is None or (last is not None and last.terminated is not None):
            return False
        return now.running is not None and now.waiting is None and now.terminated is None


class _OrdinaryAddress(msgspec.Struct, gc=False):
    ip: str | None = None


class _OrdinaryStatus(msgspec.Struct, gc=False):
    phase: str | None = None
    reason: str | None = None
    nominatedNodeName: str | None = None  # noqa: N815
    podIPs: list[_OrdinaryAddress] | None = None  # noqa: N815
    initContainerStatuses: list[_Present] | None = None  # noqa: N815
    containerStatuses: list[_OrdinaryContainer] | None = None  # noqa: N815


class _Ordinary(msgspec.Struct, gc=False):
    metadata: msgspec.Raw
    spec: _OrdinarySpec
    status: _OrdinaryStatus


_ordinary = msgspec.json.Decoder(_Ordinary).decode
_metadata = msgspec.json.Decoder(_OrdinaryMetadata).decode

_LIVE: Final = ("Pending", "Running")
_GATED: Final = b'"SchedulingGated"'
"""Reason of a condition, which is shown instead of the phase."""


def rows(records: Iterable[StoredObject], version: str, now: datetime | None = None) -> list[Object]:
    """Return the rows of pods for a Table of this version of meta.k8s.io; ages are counted up to `now`."""
    moment = now or datetime.now(UTC)
    age = cache(lambda stamp: server_tables.age(stamp, moment))
    return [
        _ordinary_row(record, version, age)
        or server_tables.row(PODS, record.object(), "Metadata", version, moment)
        for record in records
    ]


def _ordinary_row(record: StoredObject, version: str, age: Callable[[str | None], str]) -> Object | None:
    """Return the row of an ordinary pod, None of any other."""
    try:
        pod = _ordinary(record.value)
        cells = _cells(pod, age)
    except msgspec.ValidationError:
        return None
    return _row(cells, pod.metadata, version) if cells and _GATED not in record.value else None


def _cells(pod: _Ordinary, age: Callable[[str | None], str]) -> list[Any] | None:
    spec, status, ready, restarts = pod.spec, pod.status, 0, 0
    if spec.initContainers or spec.readinessGates or status.initContainerStatuses:
        return None
    if status.reason or status.phase not in _LIVE:
        return None
    for container in status.containerStatuses or ():
        if not container.runs:
            return None
        ready += 1
        restarts += container.restartCount
    meta = _metadata(pod.metadata)
    if meta.deletionTimestamp:
        return None
    shown = [meta.name, f"{ready}/{len(spec.containers or ())}", status.phase, str(restarts)]
    address = (status.podIPs[0].ip if status.podIPs else None) or NONE
    created = age(meta.creationTimestamp)
    return [*shown, created, address, spec.nodeName or NONE, status.nominatedNodeName or NONE, NONE]


def _row(cells: list[Any], metadata: msgspec.Raw, version: str) -> Object:
    about = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
    return {"cells": cells, "object": about}
