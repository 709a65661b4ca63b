"""Objects drawn at random from the tables: of the right types, but not otherwise sound."""

from hypothesis import strategies as st

from corelane.embedded.apiserver.schema.notation import ListType, MapType, ObjectType

NAMES = st.sampled_from(["a", "b", "c", "web", "Bad_Name", "x.y/z", "-", "a b", "é"])
NUMBERS = st.sampled_from([0, 1, 2, 80, -1, 300, 65536])
QUANTITIES = st.sampled_from(["1", "0", "500m", "1.5", "2Gi", "1e3", "-1", "100n", "3Mi"])
SCALARS = {
    "string": NAMES,
    "text-or-null": NAMES,
    "bool": st.booleans(),
    "int32": NUMBERS,
    "int64": NUMBERS | st.just(2**40),
    "quantity": QUANTITIES,
    "amount": QUANTITIES,
    "time": st.sampled_from([None, "2026-01-02T03:04:05Z", "2026-01-02T05:04:05.9+02:00"]),
    "microtime": st.sampled_from([None, "2026-01-02T03:04:05.000006Z"]),
    "int-or-string": NAMES | NUMBERS,
    "bytes": st.sampled_from(["", "aGk=", "aGk\n="]),
    "raw": st.sampled_from([{}, {"f:a": {}}]),
    "object": st.sampled_from([{}, {"server": "s", "path": "/a"}]),
}
RESOURCES = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "storage", "odd"])


@st.composite
def objects(draw, record, *, unique=False, likely=(), depth=4):
    """An object of a record; with `unique`, no two items of a list share the key it merges by.

    `likely` fields are always there, of the others a few.
    """
    rows = [row for row in record if not row.gated]
    if depth == 0:
        rows = [row for row in rows if row.presence == "req"]
    wanted = {row.name for row in rows if row.name in likely}
    wanted |= set(draw(st.lists(st.sampled_from(sorted(record.fields)), max_size=4)))
    return {
        row.name: draw(values(row, row.shape, unique=unique, likely=likely, depth=depth))
        for row in rows
        if row.name in wanted
    }


@st.composite
def values(draw, row, shape, *, unique, likely, depth):
    more = {"unique": unique, "likely": likely, "depth": max(depth - 1, 0)}
    if isinstance(shape, ObjectType):
        return draw(objects(shape, **more))
    if isinstance(shape, MapType):
        keys = RESOURCES if getattr(shape.value, "name", "") == "amount" else NAMES
        return draw(st.dictionaries(keys, values(row, shape.value, **more), max_size=2))
    if isinstance(shape, ListType):
        items = draw(st.lists(values(row, shape.item, **more), max_size=3))
        return without_repeats(items, row.merge) if unique and row.merges else items
    if row.enum and draw(st.integers(0, 5)):
        return draw(st.sampled_from(row.enum))
    return draw(SCALARS[shape.name])


def without_repeats(items, key):
    kept = {}
    for item in items:
        if not key:
            kept.setdefault(item, item)
        elif item.get(key) is not None:
            kept.setdefault(item[key], item)
    return list(kept.values())
