"""The history of each resource: floods of another do not expire it, memory is bounded, restarts keep it."""

import sys

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.served_kinds import LEASES
from corelane.embedded.apiserver.store import history
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.stored_objects import Compacted, StoreChange


def thing(value, size=0):
    return {"metadata": {}, "value": value, "pad": "x" * size}


def weight(store):
    return sum(history.weight(one) for name in store.counts() for one in store.recent(name))


def test_a_flood_of_leases_does_not_expire_the_history_of_pods():
    """Nodes renew for half a minute, a hundred of them in each commit."""
    store = Store(None, lambda *_: {}, 1_000)
    store.put("pods", "default/a", thing(0))
    here = store.revision
    for number in range(200):
        store.put("pods", f"default/{number % 50}", thing(number))
    late = store.revision
    for _ in range(3):
        for first in range(0, 500, 100):
            changes = [StoreChange(LEASES.stored, f"n/{first + one}", thing(0)) for one in range(100)]
            store.write(changes)
    assert len(store.events("pods", here)) == 200
    assert store.events("pods", late) == []
    assert store.floor("pods") <= here
    assert store.covers("pods", late)
    with pytest.raises(Compacted):
        store.events(LEASES.stored, late)
    assert weight(store) == 1_000
    assert len(store.recent(LEASES.stored)) == 1_000 - 201


def test_a_flood_of_pods_leaves_its_part_to_every_other_resource():
    store = Store(None, lambda *_: {}, 100)
    for name in ("a", "b", "c"):
        for number in range(40):
            store.put(name, "x", thing(number))
    for number in range(1_000):
        store.put("pods", "x", thing(number))
    assert {name: len(store.recent(name)) for name in store.counts()} == dict.fromkeys(
        ("a", "b", "c", "pods"), 25
    )


def test_large_objects_use_more_of_the_budget():
    """10,000 topologies of 26 KB would be 260 MB."""
    store = Store(None, lambda *_: {}, 1_000)
    for number in range(400):
        store.put("topologies", f"node-{number % 50}", thing(number, 26_000))
    size = sum(sys.getsizeof(one.record.value) for one in store.recent("topologies"))
    assert size < 1_000 * 4096
    assert len(store.recent("topologies")) > 50


def test_the_last_event_is_kept_however_large():
    """A watch that follows closely never loses its place."""
    store = Store(None, lambda *_: {}, 10)
    store.put("pods", "a", thing(0))
    for number in range(5):
        here = store.revision
        store.put("things", "big", thing(number, 1_000_000))
        assert len(store.events("things", here)) == 1
    assert len(store.recent("things")) == 1
    assert len(store.recent("pods")) == 1


WRITES = st.lists(
    st.tuples(st.sampled_from(["pods", "leases", "nodes", "restart"]), st.integers(0, 4), st.integers(0, 3)),
    max_size=120,
)
FLOOD = [("pods", 1, 0)] * 5 + [("leases", 2, 0)] * 60 + [("restart", 0, 0)] + [("nodes", 1, 3)] * 20


@settings(max_examples=15, deadline=None)
@given(WRITES, st.integers(1, 40))
@example(FLOOD, 12)
@example(FLOOD, 3)
def test_history_is_exact_from_its_floor_on_and_bounded(tmp_path_factory, writes, size):
    path = tmp_path_factory.mktemp("store") / FILE_NAME
    store, everything, largest = Store(path, lambda *_: {}, size), [], 1
    for resource, key, kilobytes in writes:
        if resource == "restart":
            store.close()
            store = Store(path, lambda *_: {}, size)
            continue
        if kilobytes == 2 and store.get(resource, str(key)):
            revision = store.delete(resource, str(key)).revision
        else:
            revision = store.put(resource, str(key), thing(0, kilobytes * 3_000)).revision
        everything.append((revision, resource))
        largest = max(largest, history.weight(store.recent(resource)[-1]))
        _check(store, everything, size, largest)
    store.close()


def _check(store, everything, size, largest):
    names = {resource for _, resource in everything}
    assert weight(store) <= max(size, len(names) * largest)
    for name in names:
        own = [revision for revision, resource in everything if resource == name]
        floor = store.floor(name)
        assert [one.revision for one in store.events(name, floor)] == [one for one in own if one > floor]
        weights = sum(map(history.weight, store.recent(name)))
        if len(store.recent(name)) < len(own):
            event("expired")
            assert weights + largest > size // len(names), "less than its part"
