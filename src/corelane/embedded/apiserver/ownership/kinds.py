"""What the managers of an object need to know of its kind: types by apiVersion, conversion, reset fields."""

from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Any

from corelane.embedded.apiserver.codec import conversion, decoding, wire
from corelane.embedded.apiserver.ownership import merge_types, typed_values
from corelane.embedded.apiserver.ownership.field_sets import LEAF, FieldSet
from corelane.embedded.apiserver.ownership.merge_types import Mapping
from corelane.embedded.apiserver.ownership.typed_values import TypedValueError
from corelane.embedded.apiserver.served_kinds import ServedKind

Object = dict[str, Any]

_STATUS: FieldSet = {"f:status": LEAF}
_SPEC: FieldSet = {"f:spec": LEAF}
_POD_STATUS: FieldSet = {
    "f:spec": LEAF,
    "f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF},
}


class ConversionError(ValueError):
    """An object cannot be written in another version; the message is upstream's."""


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
        """Return the same resource in another version of its group, None where it is not served there.

        Raises ConversionError for a custom resource, whose converter refuses such a version.
        """
        group, _, version = api_version.rpartition("/")
        if group != self.kind.group or version not in self.kind.versions:
            if self.kind.custom:
                raise ConversionError(f"request to convert CR to an invalid group/version: {api_version}")
            return None
        return self if version == self.version else Resource(self.kind, version, self.subresource)

    def view(self, obj: AnyMapping[str, Any]) -> Object:
        """Return a stored object in the resource's group and version."""
        return wire.typed(self.kind, self.version, conversion.convert(self.kind, dict(obj), self.version))

    def converted(self, obj: Object) -> Object:
        """Return an object of another version in this one, with all its fields.

        Raises ConversionError for a field that this version does not have.
        """
        if obj.get("apiVersion") == self.api_version:
            return obj
        made = {**obj, "apiVersion": self.api_version}
        try:
            typed_values.check(self.type, made)
        except TypedValueError as error:
            raise ConversionError(str(error)) from None
        return made
