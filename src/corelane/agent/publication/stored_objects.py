"""Objects of many nodes at an API server in the same process, read and written without requests."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from corelane import quantity
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

    def merge(
        self, api: API, name: str, patch: dict[str, Any], manager: str, version: str
    ) -> StoredState | None:
        """Merge a patch into an object of this `resourceVersion`; None where a request has to do it.

        It is done with `committed`.
        """

    async def committed(self) -> None:
        """Wait until what was created and merged so far is committed."""


_TIMES: Final = {"lastHeartbeatTime", "lastTransitionTime"}
_AMOUNTS: Final = {"capacity", "allocatable"}


def agrees(stored: Any, expected: Any) -> bool:
    """Whether `stored` has all values of `expected`, but for times of conditions; others may be beside them.

    None is a member that `stored` must not have. Conditions are compared by type, taints as values among
    others, amounts of resources by what they mean, and all other lists whole.
    """
    if isinstance(expected, Mapping):
        return isinstance(stored, Mapping) and all(
            _member_agrees(stored, name, value) for name, value in expected.items() if name not in _TIMES
        )
    return bool(stored == expected)


def _member_agrees(stored: Mapping[str, Any], name: str, expected: Any) -> bool:
    if expected is None or expected in ([], {}):
        return not (expected is None and name in stored)
    present = stored.get(name)
    if name in _AMOUNTS and isinstance(expected, Mapping):  # not so in a topology's zones
        return present is not None and all(
            _equal(present.get(key), amount) for key, amount in expected.items()
        )
    if name == "conditions":
        by_type = {condition["type"]: condition for condition in present or ()}
        return all(agrees(by_type.get(condition["type"]), condition) for condition in expected)
    if name == "taints":
        return all(any(agrees(other, taint) for other in present or ()) for taint in expected)
    if isinstance(expected, list):
        if not isinstance(present, list) or len(present) != len(expected):
            return False
        return all(map(agrees, present, expected))
    return agrees(present, expected)


def _equal(stored: Any, expected: str | None) -> bool:
    """Whether two amounts are equal: the API server writes them in its own form."""
    if stored is None or expected is None:
        return stored is expected
    return bool(stored == expected or quantity.parse(str(stored)).nano == quantity.parse(expected).nano)
