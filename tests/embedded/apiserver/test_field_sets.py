"""Sets of fields against a model: a set of paths."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.ownership import field_sets
from corelane.embedded.apiserver.ownership.field_sets import PathElementError

ELEMENTS = ["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"']
PATHS = st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=4).map(tuple)
MODELS = st.frozensets(PATHS, max_size=8)


def made(model):
    fields = {}
    for path in model:
        field_sets.add(fields, path)
    return fields


@given(MODELS, MODELS)
def test_operations_are_those_of_sets_of_paths(one, other):
    left, right = made(one), made(other)
    assert frozenset(field_sets.paths(left)) == one
    assert field_sets.union(left, right) == made(one | other)
    assert field_sets.intersection(left, right) == made(one & other)
    assert field_sets.difference(left, right) == made(one - other)
    below = {path for path in one if any(path[: len(top)] == top for top in other)}
    assert field_sets.difference(left, right, deep=True) == made(one - below)
    assert (left, right) == (made(one), made(other)), "arguments stay as they are"


@given(MODELS)
def test_written_sets_are_read_as_they_were(model):
    fields = made(model)
    assert field_sets.read(field_sets.ordered(fields)) == fields
    assert all(field_sets.has(fields, path) == (path in model) for path in reduce(_prefixes, model, set()))


def _prefixes(found, path):
    return found | {path[:length] for length in range(1, len(path) + 1)}


def test_paths_come_with_fields_first_then_items_then_values():
    fields = made({("v:2",), ("f:b",), ('k:{"name":"x"}', "f:a"), ("f:a",), ("v:10",), ('k:{"name":"x"}',)})
    assert ["".join(map(field_sets.shown_element, path)) for path in field_sets.paths(fields)] == [
        ".a", ".b", '[name="x"]', "[=2]", "[=10]", '[name="x"].a',
    ]  # fmt: skip
    assert list(field_sets.ordered(fields)) == ["f:a", "f:b", 'k:{"name":"x"}', "v:2", "v:10"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('k:{"protocol":"TCP","containerPort":80.0}', 'k:{"containerPort":80,"protocol":"TCP"}'),
        ('v: "a<b"', 'v:"a\\u003cb"'),
        ("i:07", "i:7"),
        ("z:later", ""),
    ],
)
def test_an_element_has_one_text(text, same):
    assert field_sets.read_element(text) == same


@pytest.mark.parametrize("text", ["", "f", "fx", "k:[", "v:", "i:x", "k:1"])
def test_what_is_no_element_is_refused(text):
    with pytest.raises(PathElementError):
        field_sets.read_element(text)
