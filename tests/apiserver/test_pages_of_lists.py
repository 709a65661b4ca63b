"""Pages of a list, however it was changed meanwhile, are what the whole list was at its revision."""

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.apiserver.store.database import Store

KEYS = st.sampled_from([f"{space}/{name}" for space in ("a", "a-b", "b") for name in "uvwxyz"])
STEPS = st.lists(st.tuples(KEYS, st.booleans()), max_size=12)


def change(store, steps):
    for key, put in steps:
        if put:
            store.put("things", key, {"metadata": {"name": key}})
        elif store.get("things", key):
            store.delete("things", key)


@settings(max_examples=150, deadline=None)
@given(STEPS, STEPS, STEPS, st.sampled_from(["", "a/", "b/"]), st.integers(1, 4))
def test_pages_at_a_revision_are_the_list_as_it_was(before, between, later, prefix, size):
    store = Store(None, lambda *_: {}, 10_000)
    change(store, before)
    revision = store.revision
    expected = [(one.key, one.revision) for one in store.find("things", prefix)]
    change(store, between)
    pages, start = [], ""
    while True:
        found = store.range("things", prefix, revision, start)
        assert len(found) == len(expected) - len(pages)
        pages += [(one.key, one.revision) for one in found[:size]]
        if len(found) <= size:
            break
        start = found[size - 1].key[len(prefix) :] + "\0"
        change(store, later)
    assert pages == expected
