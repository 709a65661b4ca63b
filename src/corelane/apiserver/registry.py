"""What every request works on: the store, the clock, and the settings that shape new objects."""

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from corelane.apiserver import kinds, requests, status, strategy
from corelane.apiserver.kinds import Kind
from corelane.apiserver.requests import Target
from corelane.apiserver.status import StatusError
from corelane.apiserver.store import Object, Record, Store

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_BASE = 63 - _SUFFIX


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Registry:
    """The objects and what is needed to make and change them; `now` is replaceable for tests."""

    store: Store
    default_scheduler: str
    now: Callable[[], datetime] = field(default=utc_now)

    def find(self, target: Target) -> Record:
        """The object that a request names. Raises StatusError 404."""
        record = self.store.get(resource(target), target.key)
        if record is None:
            raise not_found(target)
        return record

    def timestamp(self) -> str:
        return rfc3339(self.now())


def rfc3339(moment: datetime) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def describe(stored: str, obj: Object) -> dict[str, str]:
    """The field labels of an object in stored form; what the store keeps beside it."""
    return strategy.selectable_fields(kinds.by_stored(stored), obj)


def kind_of(target: Target) -> Kind:
    """The kind that a routed request is about."""
    if target.kind is None:
        raise status.no_such_resource()
    return target.kind


def resource(target: Target) -> str:
    """The name under which the store keeps the request's objects."""
    return kind_of(target).stored


def not_found(target: Target) -> StatusError:
    return status.not_found(target.resource, target.group, target.name)


def conflict(target: Target, why: str) -> StatusError:
    return status.conflict(target.resource, target.group, target.name, why)


def generate_name(base: str) -> str:
    """`base` with five random characters, as upstream draws them."""
    return base[:_LONGEST_BASE] + "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX))


def new_uid() -> str:
    return str(uuid.uuid4())


def check_preconditions(target: Target, stored: Object, uid: str, version: str) -> None:
    """What the store itself checks before a write. Raises StatusError 409 with upstream's storage error."""
    meta = stored["metadata"]
    pairs = (("UID", uid, meta["uid"]), ("ResourceVersion", version, meta["resourceVersion"]))
    for name, wanted, found in pairs:
        if wanted and wanted != found:
            raise conflict(
                target,
                f"StorageError: invalid object, Code: 4, Key: /registry/{target.resource}/{target.key}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {name} in precondition: "
                f"{wanted}, {name} in object meta: {found}",
            )


def parse_revision(text: str) -> int:
    """An object's resourceVersion, 0 if none. Raises StatusError 500, as upstream does."""
    try:
        return requests.revision(text) if text else 0
    except ValueError as error:
        raise status.internal(str(error)) from None
