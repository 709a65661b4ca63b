"""The tables themselves: what they name exists, what exists is named, and each kind can be read by them."""

import json
import re
from pathlib import Path

import pytest

import corelane.embedded.apiserver
from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import decoding
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.schema.defaults_and_formats import FORMATS, PATTERNS
from corelane.embedded.apiserver.schema.notation import (
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    read_length,
    read_range,
)
from corelane.embedded.apiserver.validation.table_rules import RULES

SOURCES = Path(corelane.embedded.apiserver.__file__).parent
SERVED = (*served_kinds.KINDS, served_kinds.BINDINGS, served_kinds.EVICTIONS)


def records():
    found = {}
    waiting = [schema for kind in SERVED for schema in kind.schema.values()]
    while waiting:
        shape = waiting.pop()
        if isinstance(shape, ListType):
            waiting.append(shape.item)
        elif isinstance(shape, MapType):
            waiting.append(shape.value)
        elif isinstance(shape, ObjectType) and id(shape) not in found:
            found[id(shape)] = shape
            waiting += [row.shape for row in shape]
    return list(found.values())


RECORDS = records()
ROWS = [(record, row) for record in RECORDS for row in record]


def named_rules():
    checks = {name for _, row in ROWS for name in row.check}
    limits = {name for name in checks if read_range(name) or read_length(name) is not None}
    return {name.removesuffix("!") for name in checks - limits} | {
        name for record in RECORDS for name in record.rules
    }


def test_every_rule_that_a_table_names_is_registered():
    assert named_rules() - RULES.keys() - FORMATS.keys() == {"required"}


def test_every_registered_rule_is_used():
    assert RULES.keys() - named_rules() == set()


def test_every_format_is_used_and_every_pattern_is_a_formats():
    assert FORMATS.keys() - named_rules() <= {"absolute-path", "relative-path"}
    assert PATTERNS.keys() <= FORMATS.keys()


def test_the_keys_that_lists_merge_by_are_fields_of_their_items():
    for record, row in ROWS:
        for key in (row.merge, *row.keys):
            if key:
                assert isinstance(row.shape, ListType), (record.name, row.name)
                assert key in row.shape.item.fields, (record.name, row.name)


def test_only_lists_and_objects_are_merged_or_atomic():
    for record, row in ROWS:
        if row.merges or row.list or row.atomic:
            assert isinstance(row.shape, ListType | MapType | ObjectType), (record.name, row.name)
        assert set(row.strategy) <= {"merge", "replace", "retainKeys"}
        assert row.list in {"", "atomic", "map", "set"}


def test_a_default_is_a_value_that_the_field_can_have():
    for record, row in ROWS:
        if row.default is None or callable(row.default):
            continue
        read = decoding.decode(record, {row.name: row.default}, StrictNotes())
        assert read.get(row.name, "") == row.default, (record.name, row.name)
        assert not row.enum or row.default in row.enum


def test_enumerations_and_patterns_are_of_texts():
    for record, row in ROWS:
        if row.enum or row.pattern:
            assert isinstance(row.shape, ScalarType), (record.name, row.name)
        assert len(set(row.enum)) == len(row.enum)
        re.compile(row.pattern)


def test_one_name_of_a_type_means_one_type():
    models = {}
    for record in RECORDS:
        known = models.setdefault(record.model, record)
        assert known.fields == record.fields, record.model


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.model)
def test_an_empty_object_of_each_type_is_read_as_its_zero_value(record):
    notes = StrictNotes()
    read = decoding.decode(record, {}, notes)
    assert read == decoding.zero(record)
    assert decoding.decode(record, json.loads(json.dumps(read)), notes) == read
    assert notes.strict == []


def test_every_kind_is_found_by_the_path_that_serves_it():
    for kind in served_kinds.KINDS:
        for version in kind.versions:
            assert served_kinds.by_path(kind.group, version, kind.plural) is kind
            assert version in kind.schema
    assert served_kinds.by_path("", "v2", "pods") is None
    assert served_kinds.by_path("apps", "v1", "deployments") is None


def test_the_package_keeps_its_files_short():
    long = [path.name for path in SOURCES.rglob("*.py") if len(path.read_text().splitlines()) > 500]
    assert long == []
