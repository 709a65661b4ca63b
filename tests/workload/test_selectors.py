"""Label selectors mean what Kubernetes' mean."""

import pytest

from corelane.workload import LabelRequirement, Operator, Selector

IN, NOT_IN, EXISTS, ABSENT = Operator


@pytest.mark.parametrize(
    ("rule", "of_x", "of_y", "without"),
    [
        (LabelRequirement("app", IN, ("x", "z")), True, False, False),
        (LabelRequirement("app", NOT_IN, ("x", "z")), False, True, True),
        (LabelRequirement("app", EXISTS), True, True, False),
        (LabelRequirement("app", ABSENT), False, False, True),
    ],
)
def test_each_operator_on_pods_with_and_without_the_label(rule, of_x, of_y, without):
    selector = Selector(expressions=(rule,))
    assert [selector.matches(labels) for labels in ({"app": "x"}, {"app": "y"}, {"b": "x"})] == [
        of_x,
        of_y,
        without,
    ]


def test_an_empty_value_is_not_a_missing_label():
    empty, other = LabelRequirement("app", IN, ("",)), LabelRequirement("app", NOT_IN, ("",))
    assert [empty.holds(labels) for labels in ({"app": ""}, {})] == [True, False]
    assert [other.holds(labels) for labels in ({"app": ""}, {})] == [False, True]


def test_labels_and_all_expressions_must_hold():
    both = Selector({"app": "x"}, (LabelRequirement("tier", IN, ("a",)), LabelRequirement("loud", EXISTS)))
    assert both.matches({"app": "x", "tier": "a", "loud": ""})
    for name in ("app", "tier", "loud"):
        lacking = {"app": "x", "tier": "a", "loud": ""}
        del lacking[name]
        assert not both.matches(lacking)


def test_an_empty_selector_selects_every_pod():
    assert Selector().matches({})
    assert str(Selector()) == ""
