import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from corelane.yaml_keys import UniqueKeyLoader, load_bounded

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MEMBERS = ", ".join(f"a{number}: 1" for number in range(1000))
MERGES = f"x: &x {{{MEMBERS}}}\ny: &y\n  <<: [{', '.join(['*x'] * 1000)}]\nz:\n  <<: [*y, *y]\n"


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        MERGES,
        "a: &a [*a]",
        "a: &a {b: *a}",
        "[" * 5000 + "]" * 5000,
        "\n".join(" " * depth + "a:" for depth in range(1500)),
        "a: 2001-99-99",
        "a: " + "9" * 5000,
        'a: !!int ""',
        "a: !!bool x",
        "a: !!timestamp x",
        "a: !!float x",
        'a: !!binary "é"',
        "a: !!python/object/apply:os.system [id]",
        "? [a]\n: b",
        "a: *b",
        b"\xff\xfe\xff",
        b"a: \xff",
        "\x00",
        "a: '",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_text_beyond_use_is_a_yaml_error(text: str | bytes) -> None:
    with pytest.raises(yaml.YAMLError):
        load_bounded(text)
    with pytest.raises((yaml.YAMLError, UnicodeDecodeError)):
        yaml.load(text, UniqueKeyLoader)


@given(st.text(alphabet="ab01:-[]{}&*!?<#'\"\n |>%@,.~", max_size=40) | st.binary(max_size=20))
def test_any_text_is_read_or_a_yaml_error(text: str | bytes) -> None:
    try:
        read = load_bounded(text)
    except yaml.YAMLError:
        return
    assert read == list(yaml.safe_load_all(text))


def test_aliases_and_merge_keys_within_bounds_are_read() -> None:
    text = "a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  c: 3\ne: [*a, *a]\n"
    assert load_bounded(text) == [
        {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}, "e": [{"b": 1, "c": 2}, {"b": 1, "c": 2}]}
    ]
