"""What the replayer takes for equal, and what not."""

from datetime import UTC, datetime

import pytest

from conformance.api_compare import Normaliser, align, compare, differences

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def normalised(value, **settings):
    normalise = Normaliser(now=NOON, **settings)
    normalise.learn(value)
    return normalise(value)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"uid": "0b2d3d3e-9b1f-4c57-8a41-1f6a8a4f1c11"}, {"uid": "<uid>"}),
        ({"t": "2026-03-02T00:00:00Z"}, {"t": "<time>"}),
        ({"t": "2026-03-01T23:59:59.123456Z"}, {"t": "<time>"}),
        ({"t": "2020-01-01T00:00:00Z"}, {"t": "2020-01-01T00:00:00Z"}),
        ({"t": "2026-99-01T00:00:00Z"}, {"t": "2026-99-01T00:00:00Z"}),
        ({"message": 'x "2026-03-02T00:00:00Z"'}, {"message": 'x "<time>"'}),
        ({"resourceVersion": "12"}, {"resourceVersion": "<rv>"}),
        ({"resourceVersion": "0"}, {"resourceVersion": "0"}),
        ({"resourceVersion": ""}, {"resourceVersion": ""}),
        ({"resourceVersion": 12}, {"resourceVersion": 12}),
        ({"continue": "abc"}, {"continue": "<continue>"}),
        ({"continue": ""}, {"continue": ""}),
        ({"cells": ["p", "5m10s", 3, "0s"]}, {"cells": ["p", "<age>", 3, "<age>"]}),
        ({"cells": ["3 (329d ago)", "x (2 ago)"]}, {"cells": ["3 (<age> ago)", "x (2 ago)"]}),
        ({"name": "5s"}, {"name": "5s"}),
        ({"schedulerName": "corelane-scheduler"}, {"schedulerName": "<scheduler>"}),
        ({"schedulerName": "other"}, {"schedulerName": "other"}),
        ({"m": "version: 9, current: 7"}, {"m": "version: 9, current: <rv>"}),
        ({"m": "object meta: 7, in record (8)"}, {"m": "object meta: <rv>, in record (<rv>)"}),
        ({"metadata": {"managedFields": [{}]}}, {"metadata": {}}),
        ({"generateName": "a-", "name": "a-x1y2z"}, {"generateName": "a-", "name": "a-<rand>"}),
        ({"generateName": "a-", "name": "a-x1y2zz"}, {"generateName": "a-", "name": "a-x1y2zz"}),
        ({"generateName": "a-", "name": "fixed"}, {"generateName": "a-", "name": "fixed"}),
    ],
)
def test_what_changes_from_run_to_run_becomes_a_word(raw, expected):
    assert normalised(raw) == expected


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        (None, {}),
        ({}, {"a": None}),
        ({"a": None}, {}),
        ([], [1]),
        ([1, 2], [2, 1]),
    ],
)
def test_what_differs_only_a_little_differs(expected, actual):
    assert list(differences({"x": expected}, {"x": actual}))


def test_a_difference_names_its_place():
    expected, actual = {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}
    assert list(differences(expected, actual)) == ["a[1].b: expected 2, got 3"]


def test_any_matches_every_value_but_not_an_absent_one():
    assert not list(differences({"a": "<any>"}, {"a": {"b": 1}}))
    assert list(differences({"a": "<any>"}, {}))


def test_an_element_missing_from_a_subset_is_a_difference():
    step = {"expect": {"status": 200, "body": {"g": [{"n": "a"}, {"n": "b"}]}}, "subset": {"body.g": "n"}}
    assert compare(step, {"status": 200, "body": {"g": [{"n": "b"}]}}, Normaliser())


def test_of_a_set_up_step_only_the_status_counts():
    step = {"setup": True, "expect": {"status": 201, "contentType": "application/json"}}
    assert not compare(step, {"status": 201, "contentType": "x", "body": {}}, Normaliser())
    assert compare(step, {"status": 200, "contentType": "application/json", "body": {}}, Normaliser())


def test_an_expected_element_without_the_identifying_member_is_a_difference():
    expected, actual = {"items": [{"x": 1}]}, {"items": [{"name": "a"}]}
    assert list(differences(expected, align(expected, actual, {"items": "name"})))


def an_error(status=422, reason="Invalid", causes=(), message="m", **details):
    body = {
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
        "details": {
            **details,
            "causes": [{"reason": kind, "field": field, "message": message} for kind, field in causes],
        },
    }
    return {"status": status, "contentType": "application/json", "body": body}


MISSING = ("FieldValueRequired", "spec.containers")
WRONG = ("FieldValueInvalid", "metadata.name")


@pytest.mark.parametrize(
    "actual",
    [
        an_error(causes=[MISSING], kind="Pod", name="a", status=400),
        an_error(causes=[MISSING], kind="Pod", name="a", reason="BadRequest"),
        an_error(causes=[WRONG], kind="Pod", name="a"),
        an_error(causes=[MISSING, WRONG], kind="Pod", name="a"),
        an_error(causes=[("FieldValueInvalid", "spec.containers")], kind="Pod", name="a"),
        an_error(causes=[MISSING], kind="Node", name="a"),
        an_error(causes=[MISSING], kind="Pod", name="b"),
        an_error(causes=[MISSING], kind="Pod", name="a", retryAfterSeconds=1),
        {"status": 422, "contentType": "application/json", "body": {"text": "x"}},
    ],
)
def test_an_error_differs_by_what_programs_read(actual):
    assert compare({"expect": an_error(causes=[MISSING], kind="Pod", name="a")}, actual, Normaliser())


def test_an_error_event_is_compared_without_wording():
    def events(**settings):
        return {"status": 200, "events": [{"type": "ERROR", "object": an_error(410, **settings)["body"]}]}

    step = {"expect": events(reason="Expired", message="too old resource version: 1 (2)")}
    assert not compare(step, events(reason="Expired", message="expired"), Normaliser())
    assert compare(step, events(reason="Gone"), Normaliser())


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        (['299 - "unknown field \\"a\\""'], ['299 - "unknown field b"', '299 - "duplicate field c"'], True),
        (['299 - "unknown field \\"a\\""'], [], False),
        ([], ['299 - "unknown field \\"a\\""'], False),
        (['299 - "spec.x: deprecated"'], [], True),
    ],
)
def test_warnings_of_fields_are_compared_by_their_presence(expected, actual, equal):
    answers = [{"status": 200, "body": {}, "warnings": texts} for texts in (expected, actual)]
    assert bool(compare({"expect": answers[0]}, answers[1], Normaliser())) is not equal
