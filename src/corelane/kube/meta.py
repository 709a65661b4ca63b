"""What all Kubernetes objects share: where a kind is served, metadata, conditions.

The structs have only the fields that corelane reads. Python names are the API's in snake case. Every field
has a default for where it is absent.
"""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import field

WireQuantity: TypeAlias = str | int
"""A Kubernetes quantity as it came over the wire; see `corelane.quantity`."""
ResourceList: TypeAlias = dict[str, WireQuantity]


@dataclass(frozen=True, slots=True)
class API:
    """Where the API server serves a kind. `group` is empty for the core group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    optional: bool = False
    """Whether clusters without this kind have nothing in its place."""

    @property
    def api_version(self) -> str:
        """`v1`, `coordination.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection (of all namespaces without one), an object or a subresource."""
        root = ("apis", self.group) if self.group else ("api",)
        within = ("namespaces", namespace) if self.namespaced and namespace else ()
        parts = (*root, self.version, *within, self.plural, name, subresource)
        return "/" + "/".join(part for part in parts if part)


class Wire(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Base of all structs: trees without cycles, not tracked by the garbage collector."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(Wire, frozen=True):
    """Timestamps are RFC 3339 strings, empty where absent; those of one field sort as text."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class BareMeta(ObjectMeta, frozen=True):
    """Metadata without labels and annotations, which may be most of an object."""

    labels: dict[str, str] = field(name="", default_factory=dict)
    annotations: dict[str, str] = field(name="-", default_factory=dict)


class Object(Wire, frozen=True):
    """An object with metadata; used as a kind, only its metadata is read."""

    api: ClassVar[API]
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster-wide kinds) and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def title(self) -> str:
        """`namespace/name`, or the name of a cluster-wide object."""
        return "/".join(filter(None, self.key))

    @classmethod
    def essentials(cls, tree: Any) -> dict[str, Any] | None:
        """Return the fields of a malformed object that say what it occupies; None where it occupies nothing.

        Raises AttributeError, TypeError, KeyError for values of other types.
        """
        return None


class Condition(Wire, frozen=True):
    """A condition of a pod or node. `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((c for c in conditions if c.type == kind), None)


def micro_time(time: datetime) -> str:
    """Return a time as Kubernetes' MicroTime."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339(at: float) -> str:
    """Format Unix seconds as Kubernetes does, in whole seconds and UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
