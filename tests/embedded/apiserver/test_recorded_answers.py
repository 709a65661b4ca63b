"""The recorded answers of a real kube-apiserver, replayed: all are given."""

from pathlib import Path

import pytest

from conformance import replay

FILE = Path(__file__).parents[2] / "data" / "kube_api.jsonl.gz"
BUDGETS = FILE.with_name("kube_api_budgets.jsonl.gz")
RANDOM = FILE.with_name("kube_api_random.jsonl.gz")
APPLY = FILE.with_name("kube_api_apply.jsonl.gz")
CATEGORIES = {
    "create": 132,
    "validate": 130,
    "get": 86,
    "list": 134,
    "update": 90,
    "patch": 139,
    "delete": 138,
    "binding": 46,
    "eviction": 19,
    "watch": 106,
    "ssa": 76,
    "discovery": 23,
    "auth": 31,
    "methods": 27,
}


@pytest.fixture(scope="module")
def report():
    return replay.replay(FILE, limit=10_000)


def test_every_recorded_answer_is_given(report):
    assert report.differences == ()
    assert report.passed == report.total == 1177


def test_no_step_and_no_category_was_left_out(report):
    assert {c.name: c.total for c in report.categories} == CATEGORIES
    assert report.lines()[-1] == "passed 1177 of 1177"


def test_every_recorded_answer_on_budgets_is_given():
    report = replay.replay(BUDGETS, limit=10_000)
    assert report.differences == ()
    assert report.passed == report.total == 218


def test_random_writes_by_several_managers_are_answered_as_recorded():
    report = replay.replay(APPLY, limit=10_000)
    assert report.differences == ()
    assert report.passed == report.total == 860


def test_every_recorded_answer_to_random_requests_is_given():
    """Drawn at random, objects changed in a few places; recorded from kube-apiserver 1.36.2."""
    report = replay.replay(RANDOM, limit=10_000)
    assert report.differences == ()
    assert report.passed == report.total
    assert report.total >= 1100
