import asyncio
from datetime import UTC, datetime, timedelta

from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.server_backend import Backend, describe

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def stamp(minutes):
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(created, **more):
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": "e", "namespace": "default", "creationTimestamp": stamp(created)},
        "involvedObject": {},
        "source": {},
        "eventTime": None,
        **more,
    }


def registry(**events):
    backend = Backend(Store(None, describe), "s", now=lambda: NOW)
    for name, obj in events.items():
        backend.store.put("events", f"default/{name}", obj)
    return backend


def test_an_event_goes_an_hour_after_it_was_last_seen():
    backend = registry(
        fresh=event(59),
        old=event(61),
        again=event(300, lastTimestamp=stamp(10)),
        timed=event(300, eventTime=stamp(10).replace("Z", ".000000Z")),
        series=event(300, series={"count": 3, "lastObservedTime": stamp(20).replace("Z", ".000000Z")}),
    )
    asyncio.run(server_backend.expire_events(backend))
    left = {record.key.removeprefix("default/") for record in backend.store.find("events")}
    assert left == {"fresh", "again", "timed", "series"}
    assert backend.store.events("events", 5)[0].kind == "DELETED"


async def test_the_chores_go_on_after_a_failure(tmp_path):
    store = Store(tmp_path / "apiserver.db", describe)
    backend = Backend(store, "s", now=lambda: NOW)
    calls = []

    def broken():
        calls.append("tried")
        raise OSError("disk full")

    backend.store.checkpoint = broken
    task = asyncio.create_task(server_backend.keep_house(backend, period=0.01))
    while len(calls) < 3:
        await asyncio.sleep(0.01)
    task.cancel()
    store.close()


async def test_a_long_log_is_folded_before_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(server_backend, "_LOOK", 0.001)
    monkeypatch.setattr(server_backend, "_LONGEST_LOG", 1 << 20)
    backend = Backend(Store(tmp_path / "apiserver.db", describe), "s", now=lambda: NOW)
    task = asyncio.create_task(server_backend.keep_house(backend, period=3600))
    for number in range(3):
        backend.store.put("events", f"default/{number}", event(0, note="x" * 2_000_000))
        while backend.store.log_bytes:
            await asyncio.sleep(0.001)
    task.cancel()
    assert len(backend.store.find("events")) == 3
    backend.store.close()


async def test_the_log_is_looked_at_only_after_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(server_backend, "_LOOK", 0.001)
    looks = []
    monkeypatch.setattr(Store, "log_bytes", property(lambda _: looks.append(1) or 0))
    store = Store(tmp_path / "apiserver.db", describe)
    task = asyncio.create_task(server_backend.keep_house(Backend(store, "s"), period=3600))
    for number in range(1, 4):
        for name in "abc":
            store.put("events", f"default/{name}", event(0))
        while len(looks) < number:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert len(looks) == number
    task.cancel()
    store.close()


def test_events_are_read_for_expired_ones_at_the_start_and_then_every_five_minutes(monkeypatch):
    periods, expired = [], []

    async def expire(_):
        expired.append(len(periods) + 1)
        if len(expired) == 2:
            raise OSError("disk full")

    async def run():
        backend = Backend(Store(None, describe), "s", now=lambda: NOW)
        monkeypatch.setattr(backend.store, "checkpoint", lambda: periods.append(1))
        monkeypatch.setattr(server_backend, "expire_events", expire)
        task = asyncio.create_task(server_backend.keep_house(backend, period=0.0001))
        while len(expired) < 4:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 180))
    assert expired == [1, 15, 15, 29], "after a failure it is tried again the next time"
