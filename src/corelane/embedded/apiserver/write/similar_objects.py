"""Objects that differ from the one before in their name and UIDs alone, created without checking them again.

A thousand simulated nodes of one machine publish the same object a thousand times. The first goes through
the pipeline; what it became is kept as text in which name, owner and UID are marks, and the next with the
same text is made from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corelane import names
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, StoredObject
from corelane.embedded.apiserver.write import pipeline

_NAME: Final = b'"\0name"'
_OWNER: Final = b"\0owner"
_UID: Final = b"\0uid"
"""Marks: JSON has no NUL within its strings."""
_UID_LENGTH: Final = 36

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode


@dataclass(frozen=True, slots=True)
class _Template:
    """`key` is the request, `value` what was stored for it, both with marks."""

    key: tuple[bytes, str, WriteOptions]
    value: bytes


class SimilarObjects:
    """Creates objects in `backend`, and keeps the last one of each kind as a template."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._templates: dict[str, _Template] = {}
        self.reused = 0
        """Number of objects that were made from a template."""

    def create(
        self,
        target: Target,
        body: Object,
        options: WriteOptions,
        complete: Callable[[Object], Object] = lambda obj: obj,
    ) -> StoredObject:
        """Create an object as a POST of `body` would; `complete` returns what it becomes right after.

        Raises StatusError, StoreError.
        """
        kind, name = server_backend.kind_of(target), str(body["metadata"]["name"])
        owner = _owner(body)
        key = (_marked(_encode(body), name, owner), self._backend.timestamp(), options)
        template = self._templates.get(kind.stored)
        if template is not None and template.key == key and _usual(name):
            self.reused += 1
            return self._backend.store.put(kind.stored, target.key, _filled(template.value, name, owner))
        obj, _ = envelope.shaped(kind, target.version, body)
        created = pipeline.create(self._backend, target, obj, options).obj
        made = complete(created)
        if made != created:
            self._backend.store.put(kind.stored, target.key, made)
        value = _marked(_encode(made), name, owner).replace(made["metadata"]["uid"].encode(), _UID)
        if value.count(_NAME) == key[0].count(_NAME):  # else the server's own part has the name by chance
            self._templates[kind.stored] = _Template(key, value)
        return self._backend.find(target)


def _owner(body: Object) -> str:
    """Return the UID of the object's first owner; "" without one."""
    owners: list[dict[str, Any]] = body["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def _usual(name: str) -> bool:
    """Whether every kind of object may have the name, as value of a label, too."""
    return not names.dns_subdomain(name) and not names.label_value(name)


def _marked(text: bytes, name: str, owner: str) -> bytes:
    text = text.replace(_encode(name), _NAME)
    return text.replace(owner.encode(), _OWNER) if len(owner) == _UID_LENGTH else text


def _filled(text: bytes, name: str, owner: str) -> Object:
    text = text.replace(_NAME, _encode(name)).replace(_OWNER, owner.encode())
    obj: Object = _decode(text.replace(_UID, server_backend.new_uid().encode()))
    del obj["metadata"]["resourceVersion"]
    return obj
