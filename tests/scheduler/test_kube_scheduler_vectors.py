"""The recorded answers of kube-scheduler's own plugins, asked again of the scheduler's core."""

from collections import Counter

import pytest

from support.kube_scheduler import replay
from support.kube_scheduler.cases import FAMILIES, cases

FILTERED = tuple(family for family in FAMILIES if family != "preemption")


def test_the_file_says_what_was_asked_of_which_program():
    head = replay.head()
    assert head["program"] == "kube-scheduler"
    assert head["version"] == "v1.36.2"


def test_the_generator_still_makes_the_recorded_cases():
    head = replay.head()
    recorded = {case["name"]: case for case in replay.recorded()}
    for case in cases(head["seed"], 3):
        answered = recorded.get(case["name"])
        assert answered is None or answered == case | {"want": answered["want"]}


def test_every_family_has_cases_of_each_outcome():
    outcomes: Counter[tuple[str, bool]] = Counter()
    for case in replay.recorded():
        placed = case["want"]["feasible"] or case["want"].get("preemption", {}).get("winners")
        outcomes[case["family"], bool(placed)] += 1
    assert {family for family, placed in outcomes if placed} == set(FAMILIES)
    assert {family for family, placed in outcomes if not placed} == set(FAMILIES) - {"images"}


@pytest.mark.parametrize("family", FILTERED)
def test_pods_go_to_nodes_that_kube_scheduler_finds_feasible_or_wait_with_its_message(family):
    differences = {case["name"]: replay.difference(case) for case in replay.recorded(family=family)}
    wrong = {name: text for name, text in differences.items() if text}
    assert not wrong, f"{len(wrong)} of {len(differences)}: {dict(list(wrong.items())[:5])}"
