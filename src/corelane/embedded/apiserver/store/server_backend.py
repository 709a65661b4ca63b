"""State behind every request: the store, the clock, settings for new objects; and its housekeeping."""

import asyncio
import random
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from corelane import structured_log
from corelane.embedded.apiserver import api_requests, served_kinds, status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.served_kinds import EVENTS, ServedKind
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.stored_objects import Object, StoredObject, StoreError

_uids = random.Random(secrets.randbits(256))  # noqa: S311 - unique, and no secret
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_BASE = 63 - _SUFFIX


@dataclass(frozen=True, slots=True)
class Backend:
    """The store, and what creates and changes objects in it; `now` is replaceable for tests."""

    store: Store
    default_scheduler: str
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def find(self, target: Target) -> StoredObject:
        """The object that a request names. Raises StatusError 404."""
        record = self.store.get(resource(target), target.key)
        if record is None:
            raise not_found(target)
        return record

    def timestamp(self) -> str:
        return rfc3339(self.now())


def rfc3339(moment: datetime) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return f"{moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def describe(stored: str, obj: Object) -> dict[str, str]:
    """The field labels of an object in stored form; what the store keeps beside it."""
    kind = served_kinds.by_stored(stored)
    return wire.selectable_fields(kind, obj) if kind else {}


def kind_of(target: Target) -> ServedKind:
    """The kind that a routed request is about."""
    if target.kind is None:
        raise status_errors.no_such_resource()
    return target.kind


def resource(target: Target) -> str:
    """The name under which the store keeps the request's objects."""
    return kind_of(target).stored


def not_found(target: Target) -> StatusError:
    return status_errors.not_found(target.resource, target.group, target.name)


def conflict(target: Target, why: str) -> StatusError:
    return status_errors.conflict(target.resource, target.group, target.name, why)


def generate_name(base: str) -> str:
    """`base` with five random characters, as upstream draws them."""
    return base[:_LONGEST_BASE] + "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX))


def new_uid() -> str:
    """Return a random UUID. The system is asked once for randomness: for each UID that took up to 1 ms."""
    return str(uuid.UUID(int=_uids.getrandbits(128), version=4))


def check_preconditions(target: Target, stored: Object, uid: str, version: str) -> None:
    """Check UID and resourceVersion before a write. Raises StatusError 409."""
    meta = stored["metadata"]
    for name, given, actual in (
        ("uid", uid, meta["uid"]),
        ("resourceVersion", version, meta["resourceVersion"]),
    ):
        if given and given != actual:
            raise conflict(target, f"precondition failed: {name} {given} given, the object has {actual}")


def parse_revision(text: str) -> int:
    """An object's resourceVersion, 0 if none. Raises StatusError 500, as upstream does."""
    try:
        return api_requests.revision(text) if text else 0
    except ValueError as error:
        raise status_errors.internal(str(error)) from None


# --- housekeeping

EVENT_LIFE = timedelta(hours=1)
"""Time to keep an event after it was last seen, as upstream's `--event-ttl`."""

_PERIOD = 20.0  # seconds
_LOOK = 0.5  # seconds between two looks at the write-ahead log, while something is written
_EXPIRY_PERIODS = 15
"""Every five minutes all events are read, to find those that have expired."""
_LONGEST_LOG = 8 << 20
"""Bytes of the write-ahead log beyond which it is folded before its time."""
_AT_ONCE = 100
_BACKUP_PERIODS, _FIRST_BACKUP = 30, 3  # every ten minutes, the first after one

_log = structured_log.get_logger("corelane.embedded.apiserver")


async def keep_house(backend: Backend, period: float = _PERIOD) -> None:
    """Fold the write-ahead log into the file every `period` seconds until cancelled.

    The first time and every `_EXPIRY_PERIODS` periods events are expired, every `_BACKUP_PERIODS` the file is
    backed up. A failure is logged and tried again the next time.
    """
    expiry_due = True
    for number in count(1):
        try:
            # sleep, and fold the log meanwhile whenever it is long
            loop = asyncio.get_running_loop()
            end = loop.time() + period
            while (left := end - loop.time()) > 0 and await backend.store.next_commit(left):
                await asyncio.sleep(min(left, _LOOK))
                if backend.store.log_bytes > _LONGEST_LOG:
                    await asyncio.to_thread(backend.store.checkpoint)
            if expiry_due or number % _EXPIRY_PERIODS == 0:
                expiry_due = True
                await expire_events(backend)
                expiry_due = False
            await asyncio.to_thread(backend.store.checkpoint)
            if number % _BACKUP_PERIODS == _FIRST_BACKUP:
                await asyncio.to_thread(backend.store.back_up)
        except (StoreError, OSError, ValueError) as error:
            _log.warning("housekeeping failed", error=str(error))
            await asyncio.sleep(period)


async def expire_events(backend: Backend) -> None:
    """Delete the events that were last seen longer than EVENT_LIFE ago. Raises StoreError."""
    oldest = backend.now() - EVENT_LIFE
    for number, record in enumerate(backend.store.find(EVENTS.stored), 1):
        if last_seen(record.object()) < oldest and backend.store.get(EVENTS.stored, record.key) is record:
            backend.store.delete(EVENTS.stored, record.key)
        if number % _AT_ONCE == 0:
            await backend.store.committed()
            await asyncio.sleep(0)
    await backend.store.committed()


def last_seen(event: Object) -> datetime:
    """Return the latest time in an event in stored form (core/v1)."""
    stamps = (
        event["metadata"]["creationTimestamp"],
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max(datetime.fromisoformat(stamp) for stamp in stamps if stamp)
