"""Writes of one pass of the loop share a commit: nothing is answered or announced before, or if it fails."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.http.in_process import InProcess
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.stored_objects import StoreChange, StoreError
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import ConfigMap
from support.apiserver import CONFIG_MAPS, TOKENS, config_map, serving

ADMIN_USER = next(iter(TOKENS.values()))


def thing(value):
    return {"metadata": {}, "value": value}


def grouped(path=None):
    """A store, and the commits that are due."""
    store, due = Store(path, lambda *_: {}), []
    store.group_commits(due.append)
    return store, due


def rows(path):
    with sqlite3.connect(path) as db:
        return db.execute("SELECT count(*) FROM revision").fetchone()[0]


def full(store):
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def freed(store):
    store._db.execute("PRAGMA max_page_count = 1000000")


def picture(store, resource="things"):
    return {record.key: (record.revision, record.object()) for record in store.find(resource)}


def test_writes_are_committed_and_announced_together(tmp_path):
    store, due = grouped(tmp_path / FILE_NAME)
    woken = []
    with store.woken("things", lambda: woken.append(len(store.events("things", 0)))):
        first, second = store.put("things", "a", thing(1)), store.put("things", "a", thing(2))
        store.delete("things", "a")
        assert (first.revision, second.revision) == (1, 2)
        assert (store.revision, store.events("things", 0), woken) == (0, [], [])
        assert rows(tmp_path / FILE_NAME) == 0
        assert len(due) == 1
        due.pop()()
        assert woken == [3]
    assert (store.revision, rows(tmp_path / FILE_NAME)) == (3, 3)
    store.put("things", "b", thing(3))
    assert len(due) == 1
    store.close()
    assert rows(tmp_path / FILE_NAME) == 4
    due.pop()()


def test_a_commit_that_fails_takes_everything_back(tmp_path):
    store, due = grouped(tmp_path / FILE_NAME)
    store.put("things", "a", thing(1))
    store.put("things", "b", thing(1))
    due.pop()()
    before, woken = picture(store), []
    full(store)
    with store.woken("things", lambda: woken.append(1)):
        store.delete("things", "a")
        store.put("things", "a", thing("x" * 50_000))
        store.put("things", "b", thing(2))
        store.put("things", "c", thing(2))
        with pytest.raises(StoreError, match=r"cannot write .*full; free space .* leave the file"):
            store.commit()
    assert (picture(store), store.revision, woken) == (before, 2, [])
    freed(store)
    assert store.put("things", "c", thing(3)).revision == 3
    store.close()
    again = Store(tmp_path / FILE_NAME, lambda *_: {})
    assert [one.revision for one in again.events("things", 0)] == [1, 2, 3]


def test_an_object_that_cannot_be_written_changes_nothing():
    store, due = grouped()
    store.put("things", "a", thing(1))
    with pytest.raises(TypeError):
        store.write([StoreChange("things", "b", thing(1)), StoreChange("things", "c", thing(object()))])
    assert picture(store).keys() == {"a"}
    due.pop()()
    assert len(store.events("things", 0)) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from("abcd")),
        st.tuples(st.sampled_from(["commit", "fail", "restart"]), st.just("")),
    ),
    max_size=40,
)
ROLLBACK = [("put", "a"), ("commit", ""), ("delete", "a"), ("put", "a"), ("put", "b"), ("fail", "")]


@settings(max_examples=20, deadline=None)
@given(STEPS)
@example([*ROLLBACK, ("put", "b"), ("restart", ""), ("delete", "b"), ("fail", "")])
def test_any_order_of_commits_and_failures_is_that_of_whole_groups(tmp_path_factory, steps):
    """Against a model of two dictionaries: what is committed, and what writers see."""
    path = tmp_path_factory.mktemp("store") / FILE_NAME
    store, due = grouped(path)
    committed, seen, history, group = {}, {}, 0, 0
    for number, (step, key) in enumerate(steps):
        if step == "put":
            store.put("things", key, thing(number))
            seen[key], group = number, group + 1
        elif step == "delete" and key in seen:
            store.delete("things", key)
            del seen[key]
            group += 1
        elif step == "fail":
            broken(store)
            seen, group = dict(committed), 0
        elif step in {"commit", "restart"}:
            committed, history, group = dict(seen), history + group, 0
            if step == "restart":
                store.close()
                store, due = grouped(path)
            else:
                store.settle()
        assert {key: obj["value"] for key, (_, obj) in picture(store).items()} == seen
        assert list(store._shelf("things").keys) == sorted(seen)
        assert store.revision == len(store.events("things", 0)) == history
        assert bool(group) <= bool(due)
    store.close()


def broken(store):
    """Have the next commit fail."""
    insert = store._insert

    def fail(events):
        raise StoreError("cannot write")

    store._insert = fail
    store.settle()
    store._insert = insert


# --- through requests


def commits(store):
    """Statements that begin or are a transaction, from now on."""
    found = []

    def note(statement):
        if statement.startswith(("BEGIN", "INSERT INTO revision")):
            found.append(statement)

    store._db.set_trace_callback(note)
    return lambda: sum(one.startswith("BEGIN") for one in found), lambda: sum(
        "revision" in one for one in found
    )


@pytest.fixture
def api(tmp_path):
    return serving(data_dir=tmp_path)


def client_and_store(api):
    return KubeClient(InProcess(api.server, ADMIN_USER)), api.server._store


def named(name):
    return config_map(name) | {"metadata": {"name": name, "namespace": "default"}}


async def test_requests_of_one_pass_share_a_commit(api):
    client, store = client_and_store(api)
    transactions, inserted = commits(store)
    await asyncio.gather(*(client.create(named(f"a-{number}")) for number in range(40)))
    assert (transactions(), inserted()) == (1, 40)
    await asyncio.gather(*(api.made(CONFIG_MAPS, config_map(f"b-{number}")) for number in range(40)))
    assert inserted() == 80
    assert transactions() < 40


async def test_full_disk_refuses_every_request_of_the_pass_and_announces_nothing(api):
    client, store = client_and_store(api)
    await client.create(named("first"))
    revision = store.revision
    full(store)
    bodies = [named(f"a-{number}") | {"data": {"x": "y" * 3_000}} for number in range(30)]
    async with api.watching(CONFIG_MAPS, resourceVersion=revision, timeoutSeconds=1) as stream:
        answers = await asyncio.gather(*map(client.create, bodies), return_exceptions=True)
        over_http = await asyncio.gather(*(api("POST", CONFIG_MAPS, body) for body in bodies))
        assert await stream.next() is None
    assert {type(answer) for answer in answers} == {APIError}
    assert {answer.code for answer in answers} | {answer.status for answer in over_http} == {500}
    for text in [str(answer) for answer in answers] + [answer.body["message"] for answer in over_http]:
        assert "disk is full; free space" in text
    assert store.revision == revision
    assert {one.metadata.name for one in (await client.list(ConfigMap)).items} == {"first"}
    freed(store)
    await client.create(bodies[0])
    assert (await client.get(ConfigMap, "a-0", "default")).data == {"x": "y" * 3_000}


async def test_a_refusal_because_of_a_write_that_fails_is_not_answered(api):
    """The second create would be AlreadyExists: of an object that never was."""
    client, store = client_and_store(api)
    broken_insert(store)
    answers = await asyncio.gather(*(client.create(named("a")) for _ in range(2)), return_exceptions=True)
    assert [(answer.code, answer.message) for answer in answers] == [(500, "cannot write: once")] * 2
    with pytest.raises(APIError) as missing:
        await client.get(ConfigMap, "a", "default")
    assert missing.value.code == 404


def broken_insert(store):
    insert = store._insert

    def once(events):
        store._insert = insert
        raise StoreError("cannot write: once")

    store._insert = once


async def test_a_read_in_the_same_pass_shows_what_is_committed(api):
    client, store = client_and_store(api)
    broken_insert(store)
    write, read = await asyncio.gather(
        client.create(named("a")), client.list(ConfigMap), return_exceptions=True
    )
    assert isinstance(write, APIError)
    assert [one.metadata.name for one in read.items] == []
    _, read = await asyncio.gather(client.create(named("a")), client.list(ConfigMap))
    assert [one.metadata.name for one in read.items] == ["a"]
    assert read.resource_version == str(store.revision)


async def test_a_client_that_leaves_does_not_stop_the_others(api):
    client, _ = client_and_store(api)
    leaving = asyncio.create_task(client.create(named("a")))
    staying = asyncio.create_task(client.create(named("b")))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying)["metadata"]["name"] == "b"
    assert {one.metadata.name for one in (await client.list(ConfigMap)).items} >= {"b"}


async def test_a_collection_is_deleted_in_parts(api):
    client, store = client_and_store(api)
    await asyncio.gather(*(client.create(named(f"a-{number}")) for number in range(120)))
    transactions, _ = commits(store)
    assert (await api("DELETE", CONFIG_MAPS)).status == 200
    assert not (await client.list(ConfigMap)).items
    assert 1 < transactions() < 10


# --- kill -9

SERVER = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from corelane.embedded.apiserver.http.auth import User
    from corelane.embedded.apiserver.http.in_process import InProcess
    from corelane.embedded.apiserver.http.server import APIServer
    from corelane.kube.client import KubeClient
    from corelane.kube.objects import ConfigMap

    USER = User("admin", ("system:masters",))

    async def write(client, writer, life):
        number = 0
        while True:
            number += 1
            name = f"{life}-{writer}-{number % 5}"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": str(number)},
                    "metadata": {"name": name, "namespace": "default"}}
            if number <= 5:
                made = await client.create(body)
            else:
                made = await client.patch(ConfigMap, name, {"data": {"n": str(number)}}, namespace="default")
                made = await client.get(ConfigMap, name, "default")
                made = {"metadata": {"resourceVersion": made.metadata.resource_version}}
            print(name, number, made["metadata"]["resourceVersion"], flush=True)

    async def main():
        server = APIServer(data_dir=Path(sys.argv[1]), tokens={"t": USER})
        await server.start()
        clients = [KubeClient(InProcess(server, USER)) for _ in range(12)]
        clients += [KubeClient.connect_to(server.url, "t") for _ in range(6)]
        await asyncio.gather(*(write(one, number, sys.argv[2]) for number, one in enumerate(clients)))

    asyncio.run(main())
""")


def test_kill_9_among_concurrent_writers_loses_no_acknowledged_write(tmp_path):
    """Three lives, killed at random moments; in-process writers and HTTP clients share commits."""
    acknowledged, last, chance = {}, 0, random.Random(14)
    for life in range(3):
        command = [sys.executable, "-c", SERVER, str(tmp_path), str(life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            lines = [server.stdout.readline() for _ in range(chance.randint(40, 250))]
            os.kill(server.pid, signal.SIGKILL)
            lines += server.stdout.read().split("\n")[:-1]
        said = [line.split() for line in lines]
        assert min(int(revision) for _, _, revision in said) > last, "a revision was given twice"
        for name, number, revision in said:
            acknowledged[name] = max(int(number), acknowledged.get(name, 0))
            last = max(last, int(revision))
        store = Store(tmp_path / FILE_NAME, lambda *_: {})
        assert store.revision >= last
        found = {one.key.partition("/")[2]: json.loads(one.value) for one in store.find("configmaps")}
        lost = [name for name, number in acknowledged.items() if int(found[name]["data"]["n"]) < number]
        assert not lost
        last = store.revision
        store.close()
    assert len(acknowledged) > 100
