import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.store import state_file
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.stored_objects import Compacted, StoreError


def nothing(resource, obj):
    return {}


def thing(value=0, **meta):
    return {"kind": "Thing", "metadata": {"name": "x", **meta}, "value": value}


def memory(window=10_000):
    return Store(None, nothing, window)


def on_disk(directory, window=10_000):
    return Store(directory / FILE_NAME, nothing, window)


def values(records):
    return {record.key: record.object()["value"] for record in records}


def test_a_record_hands_out_copies():
    store = memory()
    store.put("things", "a", thing(1))
    store.get("things", "a").object()["value"] = 2
    assert store.get("things", "a").object()["value"] == 1


def test_history_ends_at_the_window():
    store = memory(window=3)
    for value in range(5):
        store.put("things", "a", thing(value))
    assert store.floor("things") == 2
    assert [event.revision for event in store.events("things", 2)] == [3, 4, 5]
    with pytest.raises(Compacted):
        store.events("things", 1)
    with pytest.raises(Compacted):
        store.find("things", at=1)


def test_waking_is_per_resource_and_ends_with_its_context():
    store, calls = memory(), []
    with store.woken("things", lambda: calls.append("woken")):
        store.put("things", "a", thing())
        store.put("others", "a", thing())
    store.put("things", "b", thing())
    assert calls == ["woken"]


def test_what_is_superseded_and_out_of_the_window_leaves_the_file(tmp_path):
    store = on_disk(tmp_path, window=10)
    for value in range(1000):
        store.put("things", str(value % 3), thing(value))
    store.close()
    rows = sqlite3.connect(tmp_path / FILE_NAME).execute("SELECT count(*) FROM revision").fetchone()[0]
    assert rows <= 10 + 3
    again = on_disk(tmp_path, window=10)
    assert values(again.find("things")) == {"0": 999, "1": 997, "2": 998}
    assert again.floor("things") == 990
    again.close()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=20, deadline=None)
@given(OPERATIONS, st.integers(1, 12))
def test_any_history_is_kept_across_restarts(tmp_path_factory, operations, window):
    """Against a model that keeps every state it ever had."""
    directory = tmp_path_factory.mktemp("store")
    store, states = on_disk(directory, window), [{}]
    for what, key, value in operations:
        current = states[-1]
        if what == "restart":
            store.close()
            store = on_disk(directory, window)
        elif what == "put":
            store.put("things", key, thing(value))
            states.append({**current, key: value})
        elif key in current:
            store.delete("things", key)
            states.append({k: v for k, v in current.items() if k != key})
        assert store.revision == len(states) - 1
        for revision in range(store.floor("things"), len(states)):
            assert values(store.find("things", at=revision)) == states[revision]
    store.close()


WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from corelane.embedded.apiserver.store.database import Store
    store = Store(Path(sys.argv[1]), lambda resource, obj: {})
    number = store.revision
    while True:
        number += 1
        store.put("things", str(number % 7), {"metadata": {}, "value": number})
        print(number, flush=True)
""")


def test_what_was_answered_survives_kill_9(tmp_path):
    path = tmp_path / FILE_NAME
    acknowledged = 0
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline().strip() == str(acknowledged + 1)
            time.sleep(0.2)
            os.kill(writer.pid, signal.SIGKILL)
            lines = [line for line in writer.stdout.read().split() if line]
        least = int(lines[-1]) if lines else acknowledged + 1
        store = Store(path, nothing)
        assert store.revision >= least
        newest = store.get("things", str(store.revision % 7))
        assert newest.object()["value"] == store.revision
        acknowledged = store.revision
        store.close()
    assert acknowledged > 20


def test_a_second_server_is_refused_while_the_first_lives(tmp_path):
    store = on_disk(tmp_path)
    with pytest.raises(StoreError, match=r"apiserver\.db is in use by another corelane"):
        on_disk(tmp_path)
    store.close()
    on_disk(tmp_path).close()


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / FILE_NAME).write_text("These are not the bytes you are looking for. " * 100)
    with pytest.raises(StoreError, match=r"apiserver\.db: damaged .*not a database.*move the file to"):
        on_disk(tmp_path)


def test_a_foreign_database_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("CREATE TABLE mine (x)")
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StoreError, match=r"is not a corelane state file; .*move the file to another name"):
        on_disk(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_directory_in_place_of_the_file_is_named(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StoreError, match=r"apiserver\.db: damaged .it is a directory.*move the file to"):
        on_disk(tmp_path)
    backup = tmp_path / f"{FILE_NAME}.backup"
    good = on_disk(tmp_path / "other")
    good.put("things", "a", thing(1))
    good.back_up()
    state_file.backup_path(tmp_path / "other" / FILE_NAME).rename(backup)
    with pytest.raises(StoreError, match="--restore-backup"):
        on_disk(tmp_path)
    state_file.restore(tmp_path / FILE_NAME, backup)
    restored = on_disk(tmp_path)
    assert values(restored.find("things")) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"\xff" * 5000, None], ids=["empty", "garbage", "missing"])
def test_a_new_file_without_its_log_is_a_state_file(tmp_path, damage):
    """The log has what was written last; the file alone is an older state, not a foreign database."""
    store = on_disk(tmp_path)
    store.put("things", "a", thing(1))
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / FILE_NAME, copy / FILE_NAME)
    if damage is not None:
        (copy / f"{FILE_NAME}-wal").write_bytes(damage)
    assert values(on_disk(copy).find("things")) == {}
    store.close()


def test_a_newer_layout_is_refused(tmp_path):
    on_disk(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="has layout 99, this corelane reads layout 1"):
        on_disk(tmp_path)


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"metadata":{}}'])
def test_a_damaged_row_is_named(tmp_path, value):
    store = on_disk(tmp_path)
    store.put("things", "a", thing())
    store.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE revision SET value = ?", (value,))
    with pytest.raises(StoreError, match=r"damaged .revision 1: "):
        on_disk(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    on_disk(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot use .*file"):
        Store(tmp_path / "file" / FILE_NAME, nothing)


def test_the_file_is_for_its_owner_only_and_can_be_checkpointed(tmp_path):
    store = on_disk(tmp_path)
    store.put("things", "a", thing(1))
    store.checkpoint()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    rows = sqlite3.connect(tmp_path / FILE_NAME).execute("SELECT value FROM revision").fetchall()
    assert json.loads(rows[0][0])["value"] == 1
    store.close()


def test_a_checkpoint_empties_the_log_and_loses_nothing(tmp_path):
    store = on_disk(tmp_path)
    for number in range(40):
        store.put("things", f"{number}", thing("x" * 100_000))
    assert store.log_bytes > 4_000_000
    store.checkpoint()
    assert store.log_bytes == 0
    store.put("things", "late", thing(1))
    store.checkpoint()
    rows = sqlite3.connect(tmp_path / FILE_NAME).execute("SELECT count(*) FROM revision").fetchone()
    assert rows == (41,)
    store.close()


def test_the_log_is_bounded_without_any_housekeeping(tmp_path):
    store = on_disk(tmp_path)
    longest = 0
    for number in range(80):
        store.put("things", f"{number}", thing("x" * 1_000_000))
        longest = max(longest, store.log_bytes)
    assert longest < 36 << 20
    store.close()


def filled(directory, count=400):
    store = on_disk(directory)
    for number in range(count):
        store.put("things", f"thing-{number:04}", thing("x" * (number % 900)))
    store.close()
    return directory / FILE_NAME


@settings(max_examples=60)
@given(st.data())
def test_damage_anywhere_in_the_file_is_one_error_and_leaves_the_file(tmp_path_factory, data):
    path = filled(tmp_path_factory.mktemp("damage"), 40)
    content = bytearray(path.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(
        st.one_of(st.binary(min_size=1, max_size=64), st.just(b"\0" * 4096), st.just(b"\xff" * 4096))
    )
    content[start : start + len(junk)] = junk
    content = content[: data.draw(st.sampled_from([len(content), len(content), len(content) // 2]))]
    path.write_bytes(bytes(content))
    backup = path.with_name(f"{FILE_NAME}.backup")
    assert backup.exists()
    try:
        store = Store(path, nothing)
    except StoreError as error:
        assert str(path) in str(error)
        assert path.read_bytes() == bytes(content)
        if "damaged" in str(error):
            assert f"--restore-backup {backup}" in str(error)
    else:
        store.close()


@pytest.mark.parametrize("left", [".backup.tmp", ".backup.tmp-journal", ".restored.tmp"])
def test_what_a_killed_process_left_of_a_backup_is_removed_at_the_start(tmp_path, left):
    temporary = tmp_path / f".{FILE_NAME}{left}"
    temporary.write_bytes(b"half")
    on_disk(tmp_path).close()
    assert not temporary.exists()


def test_backup_restores_what_was_written_and_keeps_the_damaged_file(tmp_path):
    path = filled(tmp_path)
    content = path.read_bytes()[:-5000] + b"\0" * 5000
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"--restore-backup .*apiserver\.db\.backup"):
        on_disk(tmp_path)
    kept = state_file.restore(path, state_file.backup_path(path))
    assert kept.read_bytes() == content
    store = on_disk(tmp_path)
    assert len(store.find("things")) == 400
    assert store.revision == 400
    store.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"hello\n", "file is not a database"),
        (None, "another application's file"),
        ("truncated", "malformed|row missing|invalid page|out of range"),
        ("layout", "layout 9, this corelane reads layout 1 and 2"),
        ("table", "its table life is missing"),
    ],
)
def test_a_file_that_is_no_backup_is_not_restored(tmp_path, content, why):
    path = filled(tmp_path)
    before, wrong = path.read_bytes(), tmp_path / "my backup?"
    wrong.write_bytes(
        state_file.backup_path(path).read_bytes() if isinstance(content, str) else content or b""
    )
    if content == "truncated":
        wrong.write_bytes(wrong.read_bytes()[: wrong.stat().st_size // 2])
    else:
        statement = {
            None: "CREATE TABLE t (a)",
            "layout": "PRAGMA user_version = 9",
            "table": "DROP TABLE life",
        }
        if content in statement:
            with contextlib.closing(sqlite3.connect(wrong)) as db:
                db.execute(statement[content])
    with pytest.raises(StoreError) as refused:
        state_file.restore(path, wrong)
    assert re.search(why, str(refused.value))
    assert str(refused.value).startswith(f"{wrong}: not a backup of an API server's objects (")
    assert str(refused.value).endswith("); nothing was changed")
    assert path.read_bytes() == before
    assert not [one for one in tmp_path.iterdir() if "damaged" in one.name or one.suffix == ".tmp"]
    assert state_file.restore(path, state_file.backup_path(path)) is not None
    store = on_disk(tmp_path)
    assert len(store.find("things")) == 400
    store.close()


def test_backup_of_a_damaged_file_does_not_replace_the_good_one(tmp_path):
    path = filled(tmp_path)
    good = state_file.backup_path(path).read_bytes()
    store = on_disk(tmp_path)
    store.put("things", "more", thing())
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(StoreError, match="damaged"):
        store.back_up()
    store.close()
    assert state_file.backup_path(path).read_bytes() == good
    assert not list(tmp_path.glob(".*tmp"))


def test_backup_of_a_lost_file_is_kept_beside_the_new_one(tmp_path):
    filled(tmp_path).unlink()
    store = on_disk(tmp_path)
    assert store.kept_backup.name == f"{FILE_NAME}.backup.kept-1"
    store.put("things", "new", thing())
    store.close()
    assert store.kept_backup.exists()
    assert state_file.backup_path(tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_file_that_is_gone_takes_no_write(tmp_path, how):
    store = on_disk(tmp_path)
    store.put("things", "a", thing(1))
    path = tmp_path / FILE_NAME
    if how == "moved":
        tmp_path.joinpath("else").mkdir()
        path.rename(tmp_path / "else" / FILE_NAME)
    else:
        path.unlink()
    if how == "replaced":
        path.write_bytes(b"")
    for write in (lambda: store.put("things", "a", thing(2)), store.checkpoint, store.back_up):
        with pytest.raises(StoreError, match="deleted or replaced while corelane runs"):
            write()
    assert values(store.find("things")) == {"a": 1}
    assert not path.exists() or path.stat().st_size == 0
    store.close()
