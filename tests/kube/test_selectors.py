import msgspec
import pytest

from corelane.kube.objects import PodDisruptionBudget
from corelane.kube.selectors import LabelSelector


def selector(text: str) -> LabelSelector:
    return msgspec.json.decode(text, type=LabelSelector)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("{}", {}, True),
        ('{"matchLabels": {"app": "web"}}', {"app": "web", "tier": "1"}, True),
        ('{"matchLabels": {"app": "web"}}', {"app": "db"}, False),
        ('{"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}', {"a": "1"}, True),
        ('{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}', {}, True),
        ('{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}', {"a": ""}, False),
        (
            '{"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}',
            {"a": ""},
            False,
        ),
    ],
)
def test_a_selector_matches_as_in_kubernetes(text: str, labels: dict[str, str], matches: bool) -> None:
    assert selector(text).compiled().matches(labels) is matches


def test_an_unknown_operator_is_named_with_its_key_and_the_known_ones() -> None:
    with pytest.raises(ValueError, match="key 'a': operator 'Like' is unknown; use one of In, NotIn, Exists"):
        selector('{"matchExpressions": [{"key": "a", "operator": "Like"}]}').compiled()


def test_an_absent_selector_differs_from_an_empty_one() -> None:
    def read(text: str) -> LabelSelector | None:
        return msgspec.json.decode(text, type=PodDisruptionBudget).spec.selector

    assert read('{"spec": {}}') is None
    assert read('{"spec": {"selector": {}}}') == LabelSelector()
