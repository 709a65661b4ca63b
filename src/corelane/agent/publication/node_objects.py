"""Objects of many nodes at an API server in the same process, read and written without requests."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from corelane.kube.meta import API


class StoredState(Protocol):
    """An object as it is stored."""

    @property
    def revision(self) -> int:
        """The number in its `resourceVersion`."""

    def object(self) -> dict[str, Any]:
        """Return a copy."""


class NodeObjects(Protocol):
    """The nodes' objects. Methods that write raise APIError."""

    def get(self, api: API, name: str) -> StoredState | None:
        """Return an object of a kind without namespaces, None where there is none."""

    def ensure(self, body: Mapping[str, Any], manager: str = ...) -> tuple[StoredState, bool]:
        """Create an object unless there is one of its name; return it as stored, and whether it is new.

        It is done with `committed`.
        """

    async def record_event(self, body: dict[str, Any]) -> None:
        """Create an event, in one commit with others."""

    async def patch_status(self, namespace: str, name: str, uid: str, status: dict[str, Any]) -> None:
        """Patch the status of the pod of this UID, as a strategic merge patch."""

    def merge(
        self, api: API, name: str, patch: dict[str, Any], manager: str, version: str
    ) -> StoredState | None:
        """Merge a patch into an object of this `resourceVersion`; None where a request has to do it.

        It is done with `committed`.
        """

    async def committed(self) -> None:
        """Wait until what was created and merged so far is committed."""

    def renew_leases(self, names: Iterable[str], at: float) -> list[str]:
        """Renew the nodes' leases at Unix seconds, in one commit; return the nodes without a lease."""

    def refresh_heartbeats(self, names: Iterable[str], conditions: Collection[str], at: float) -> list[str]:
        """Set the conditions' heartbeats to Unix seconds, in one commit; return missing nodes."""
