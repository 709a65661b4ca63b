"""What the server does unasked: fold the write-ahead log into the file, and let events of an hour ago go."""

import asyncio
from datetime import datetime, timedelta

import structlog

from corelane.apiserver.kinds import EVENTS
from corelane.apiserver.registry import Registry
from corelane.apiserver.store import Object, StoreError

EVENT_LIFE = timedelta(hours=1)
"""How long an event is kept after it was last seen, as upstream's `--event-ttl`."""

_PERIOD = 20.0  # seconds
_AT_ONCE = 100

_log = structlog.get_logger("corelane.apiserver")


async def run(reg: Registry, period: float = _PERIOD) -> None:
    """Do the chores every `period` seconds until cancelled; what fails is tried again the next time."""
    while True:
        await asyncio.sleep(period)
        try:
            await expire_events(reg)
            await asyncio.to_thread(reg.store.checkpoint)
        except (StoreError, OSError, ValueError) as error:
            _log.warning("housekeeping failed", error=str(error))


async def expire_events(reg: Registry) -> None:
    """Delete the events that were last seen longer than EVENT_LIFE ago."""
    oldest = reg.now() - EVENT_LIFE
    for number, record in enumerate(reg.store.find(EVENTS.stored), 1):
        if last_seen(record.object()) < oldest and reg.store.get(EVENTS.stored, record.key) is record:
            reg.store.delete(EVENTS.stored, record.key)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def last_seen(event: Object) -> datetime:
    """The latest moment that an event in its stored form (core/v1) tells of."""
    stamps = (
        event["metadata"]["creationTimestamp"],
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max(datetime.fromisoformat(stamp) for stamp in stamps if stamp)
