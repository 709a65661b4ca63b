"""Revisions after loss of data: none is given to two states, and a watch never resumes from a lost one."""

import asyncio
import shutil
import sqlite3
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.store import history, state_file
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.store.history import EXPIRED, KEPT, Life, Lives
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Compacted
from corelane.embedded.apiserver.write import node_objects
from corelane.kube.client import KubeClient
from corelane.kube.informer import Informer, InformerReporter
from corelane.kube.objects import ConfigMap
from support.apiserver import ADMIN, TOKENS, config_map

SOON = 1_800_000_000.0
TIME = "2026-01-01T00:00:00Z"


def opened(path, begun=SOON):
    return Store(path, lambda resource, obj: {}, begun=begun)


def put(store, key, value):
    return store.put("things", key, {"metadata": {"name": key}, "value": value}).revision


def values(store):
    return {record.key: record.object()["value"] for record in store.find("things")}


def copy_of(path, name):
    """A copy of the open file as a snapshot of its file system is: with its log."""
    copy = path.with_name(name)
    copy.mkdir()
    for part in path.parent.glob(f"{path.name}*"):
        shutil.copy(part, copy / part.name)
    return copy / path.name


def replaced(path, copy):
    for part in path.parent.glob(f"{path.name}*"):
        part.unlink()
    for part in copy.parent.glob(f"{path.name}*"):
        shutil.copy(part, path.with_name(part.name))


def test_a_new_file_begins_above_all_revisions_of_the_lost_one(tmp_path):
    path = tmp_path / FILE_NAME
    store = opened(path)
    lost = [put(store, "a", number) for number in range(50)]
    store.close()
    path.unlink()
    again = opened(path, begun=SOON + 0.001)
    assert again.kept_backup
    first = put(again, "a", 0)
    assert first > max(lost)
    assert not any(again.covers("things", one) for one in lost)
    assert again.covers("things", first)


def test_a_plain_restart_keeps_every_watch_and_the_deleted_pods(tmp_path):
    path = tmp_path / FILE_NAME
    given_out = []
    for start in range(5):
        store = opened(path, begun=SOON + start)
        given_out += [put(store, "a", number) for number in range(10)]
        store.put("pods", "default/p", {"metadata": {"uid": f"uid-{start}"}})
        given_out.append(store.delete("pods", "default/p").revision)
        store.close()
    store = opened(path, begun=SOON + 9)
    assert all(store.covers("things", revision) for revision in given_out)
    assert len(store.events("things", given_out[0])) == 49
    assert node_objects.deleted_pods(Backend(store, "s")) == {f"uid-{start}" for start in range(5)}
    store.close()


def test_a_start_that_writes_nothing_leaves_the_revision(tmp_path):
    path = tmp_path / FILE_NAME
    store = opened(path)
    last = put(store, "a", 1)
    store.close()
    idle = opened(path, begun=SOON + 50)
    assert idle.revision == last
    idle.close()
    store = opened(path, begun=SOON + 99)
    assert store.covers("things", last)
    put(store, "a", 2)
    assert [event.record.object()["value"] for event in store.events("things", last)] == [2]


@pytest.mark.parametrize("how", ["backup", "backup copied by hand", "log lost"])
def test_revisions_after_the_state_that_came_back_are_refused(tmp_path, how):
    path = tmp_path / FILE_NAME
    store = opened(path)
    kept = [put(store, "a", number) for number in range(5)]
    store.back_up()
    store.checkpoint()
    lost = [put(store, "a", number) for number in range(5, 30)]
    crashed = copy_of(path, "crashed")
    store.close()
    replaced(path, crashed)
    if how == "backup":
        state_file.restore(path, state_file.backup_path(path))
    elif how == "log lost":
        path.with_name(f"{FILE_NAME}-wal").unlink()
    else:
        shutil.copy(state_file.backup_path(path), path)
        path.with_name(f"{FILE_NAME}-wal").unlink()
    again = opened(path, begun=SOON + 1)
    assert values(again) == {"a": 4}
    for number in range(40):
        put(again, "b", number)
    for start in (again, None):
        if start is None:  # and a plain restart later
            again.close()
            again = opened(path, begun=SOON + 2)
        assert all(again.covers("things", revision) for revision in kept)
        for revision in lost:
            assert not again.covers("things", revision)
            with pytest.raises(Compacted):
                again.find("things", at=revision)
    again.close()


@pytest.mark.parametrize("begun", [0.0, SOON - 1e8])
def test_a_clock_behind_the_last_revision_still_leaves_a_gap(tmp_path, begun):
    path = tmp_path / FILE_NAME
    store = opened(path)
    kept = put(store, "a", 1)
    store.checkpoint()
    older = tmp_path / "older"
    shutil.copy(path, older)
    lost = [put(store, "a", 2) for _ in range(20)]
    store.close()
    shutil.copy(older, path)
    again = opened(path, begun)
    assert put(again, "a", 3) > max(lost)
    assert again.covers("things", kept)
    assert not any(again.covers("things", revision) for revision in lost)


def test_a_file_of_layout_1_goes_on(tmp_path):
    path = tmp_path / FILE_NAME
    store = Store(path, lambda resource, obj: {})
    for number in range(30):
        put(store, str(number % 3), number)
    store.close()
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE life; DROP TABLE history; PRAGMA user_version = 1")
    again = opened(path)
    assert values(again) == {"0": 27, "1": 28, "2": 29}
    assert len(again.events("things", 12)) == 18
    assert again.covers("things", 12)
    new = put(again, "0", 30)
    again.close()
    once_more = opened(path, begun=SOON + 1)
    assert [one.revision for one in once_more.events("things", 29)] == [30, new]
    assert once_more.covers("things", 30)
    assert not once_more.covers("things", 31)


def test_lives_are_bounded_and_history_before_them_expires():
    found, last = Lives([]), 0
    lasts = []
    for start in range(KEPT + 5):
        kept = found.followed_by(history.begin_life(last, SOON + start))
        found, last = Lives(kept), kept[-1].base + 7
        lasts.append(last)
    assert len(kept) == KEPT
    assert kept[0] == Life(int(SOON * 1e6) + 5_000_000, EXPIRED)
    assert [found.covers(one) for one in lasts] == [False] * 5 + [True] * KEPT
    assert Lives([Life(10, EXPIRED)]).covers(11)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc")),
        st.tuples(st.just("delete"), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["restart", "snapshot", "roll back", "lose"]), st.just("")),
    ),
    max_size=30,
)
WRITES = [("put", "a"), ("put", "b"), ("snapshot", ""), ("put", "a"), ("delete", "b")]


@settings(max_examples=15, deadline=None)
@given(OPERATIONS)
@example([*WRITES, ("roll back", ""), ("put", "c"), ("restart", ""), ("put", "a")])
@example(
    [*WRITES, ("lose", ""), ("put", "c"), ("put", "c"), ("restart", ""), ("roll back", ""), ("put", "b")]
)
def test_a_watch_that_is_accepted_has_the_right_picture(tmp_path_factory, operations):
    """Every state that was ever shown is remembered under its revision, as a client would."""
    path = tmp_path_factory.mktemp("store") / FILE_NAME
    snapshot = copies = 0
    begun, value, shown, kept = SOON, 0, {}, set()
    store = opened(path, begun)
    kept_then: set[int] = set()
    for what, key in operations:
        if what == "put":
            value += 1
            put(store, key, value)
        elif what == "delete" and key in values(store):
            store.delete("things", key)
        elif what == "snapshot":
            copies, kept_then = copies + 1, set(kept)
            snapshot = copy_of(path, f"copy-{copies}")
        elif what in {"restart", "roll back", "lose"}:
            begun += 0.01
            store.close()
            if what == "lose":
                path.unlink()
                kept = set()
            elif what == "roll back" and snapshot:
                replaced(path, snapshot)
                kept = set(kept_then)
            store = opened(path, begun)
        now = store.revision, values(store)
        assert shown.setdefault(*now) == now[1], "a revision was given to two states"
        kept.add(store.revision)
        _check(store, shown, kept)
    store.close()


def _check(store, shown, kept):
    refused = 0
    for revision, picture in shown.items():
        if revision and store.covers("things", revision):
            picture = dict(picture)
            for one in store.events("things", revision):
                if one.kind == "DELETED":
                    del picture[one.record.key]
                else:
                    picture[one.record.key] = one.record.object()["value"]
            assert picture == values(store)
        else:
            refused += 1
            assert revision not in kept or revision == 0, "a watch of kept history is refused"
    if refused > 1:
        event("refused")


@asynccontextmanager
async def serving(directory, port=0):
    server = APIServer(tokens=TOKENS, data_dir=directory, port=port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Lists(InformerReporter):
    def __init__(self):
        self.count = 0

    def listed(self, kind, objects):
        self.count += 1


async def until(condition):
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def port_of(server):
    return int(server.url.rpartition(":")[2])


async def soon(_seconds):
    await asyncio.sleep(0.02)


def names(informer):
    return {name for _, name in informer.objects}


@pytest.mark.parametrize("how", ["deleted", "restored", "kept"])
async def test_an_informer_over_http_has_the_right_picture_after_data_loss(tmp_path, how):
    """The new server writes as much as the lost one before the client is back: its revision exists again."""
    reporter = Lists()
    async with serving(tmp_path) as server:
        port = port_of(server)
        client = KubeClient.connect_to(server.url, ADMIN)
        informer = Informer(client, ConfigMap, reporter=reporter, sleep=soon)
        following = asyncio.create_task(informer.run())
        await create(client, "before")
        server._store.back_up()
        shutil.copy(state_file.backup_path(tmp_path / FILE_NAME), tmp_path / "restored")
        for number in range(30):
            await create(client, f"late-{number}")
        await until(lambda: len(informer.objects) == 31)
    if how == "deleted":
        (tmp_path / FILE_NAME).unlink()
    elif how == "restored":
        state_file.restore(tmp_path / FILE_NAME, tmp_path / "restored")
    async with serving(tmp_path, port) as server:
        for number in range(60):
            server._store.put("configmaps", f"default/new-{number}", stored(f"new-{number}"))
        server._store.commit()
        expected = {record.key.partition("/")[2] for record in server._store.find("configmaps")}
        await until(lambda: "new-59" in names(informer))
        assert names(informer) == expected
        assert len(expected) == {"deleted": 60, "restored": 61, "kept": 91}[how]
        assert reporter.count == (1 if how == "kept" else 2)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await client.close()


async def create(client, name):
    await client.create(config_map(name) | {"metadata": {"name": name, "namespace": "default"}})


def stored(name):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": TIME},
    }
