"""The embedded server's objects of nodes, for agents in this process; its errors as those of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from corelane.apiserver.status_errors import StatusError
from corelane.apiserver.stored_objects import StoredObject, StoreError
from corelane.apiserver.write.node_objects import NodeObjects
from corelane.kube.apierrors import APIError
from corelane.kube.meta import API


class InProcessNodes:
    """`agent.publication.node_objects.NodeObjects` of the embedded server."""

    def __init__(self, objects: NodeObjects) -> None:
        self._objects = objects

    def get(self, api: API, name: str) -> StoredObject | None:
        return self._objects.get(api, name)

    def ensure(self, body: Mapping[str, Any], manager: str = "corelane") -> tuple[StoredObject, bool]:
        with _as_answers():
            return self._objects.ensure(body, manager)

    def renew_leases(self, names: Iterable[str], at: float) -> list[str]:
        with _as_answers():
            return self._objects.renew_leases(names, at)

    def refresh_heartbeats(self, names: Iterable[str], conditions: Collection[str], at: float) -> list[str]:
        with _as_answers():
            return self._objects.refresh_heartbeats(names, conditions, at)


@contextmanager
def _as_answers() -> Iterator[None]:
    try:
        yield
    except StatusError as error:
        raise APIError(error.code, error.reason, error.message, is_status=True) from error
    except StoreError as error:
        raise APIError(500, "InternalError", str(error), is_status=True) from error
