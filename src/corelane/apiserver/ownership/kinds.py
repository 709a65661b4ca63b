"""What the managers of an object need to know of its kind: types by apiVersion, conversion, reset fields."""

from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Any

from corelane.apiserver import served_kinds
from corelane.apiserver.codec import conversion, decoding, wire
from corelane.apiserver.ownership import merge_types
from corelane.apiserver.ownership.field_sets import LEAF, FieldSet
from corelane.apiserver.ownership.merge_types import Mapping
from corelane.apiserver.served_kinds import ServedKind

Object = dict[str, Any]

_STATUS: FieldSet = {"f:status": LEAF}
_SPEC: FieldSet = {"f:spec": LEAF}
_POD_STATUS: FieldSet = {
    "f:spec": LEAF,
    "f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF},
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource in the version of a request, and the subresource that the request writes."""

    kind: ServedKind
    version: str
    subresource: str = ""

    @property
    def api_version(self) -> str:
        return self.kind.api_version(self.version)

    @property
    def type(self) -> Mapping:
        return merge_types.of(self.kind.schema[self.version])

    @property
    def reset(self) -> FieldSet:
        """Fields that a write of this resource cannot change (strategies' `GetResetFields`)."""
        if "status" not in self.kind.subresources:
            return {}
        if self.subresource != "status":
            return _STATUS
        return _POD_STATUS if self.kind.plural == "pods" else _SPEC

    def empty(self) -> Object:
        """Return what upstream takes for the object before its creation."""
        made = {"kind": self.kind.kind, "apiVersion": self.api_version}
        return made if self.kind.custom else {**decoding.zero(self.kind.schema[self.version]), **made}

    def at(self, api_version: str) -> "Resource | None":
        """Return the same resource in another apiVersion, None where it is not served there."""
        if api_version == self.api_version:
            return self
        group, _, version = api_version.rpartition("/")
        for kind in served_kinds.KINDS:
            if kind.stored == self.kind.stored and kind.group == group and version in kind.versions:
                return Resource(kind, version, self.subresource)
        return None

    def view(self, obj: AnyMapping[str, Any]) -> Object:
        """Return an object of any of the resource's versions in this one."""
        if obj.get("apiVersion") == self.api_version:
            return dict(obj)
        return wire.typed(self.kind, self.version, conversion.convert(self.kind, dict(obj), self.version))
