"""Bodies to values: JSON and YAML as upstream reads them, and whatever else is refused with one error."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.embedded.apiserver.codec import json_and_yaml
from corelane.embedded.apiserver.codec.decoding import plain_values
from corelane.embedded.apiserver.codec.json_and_yaml import (
    MAX_DEPTH,
    Float,
    ReadError,
    pairs,
    read_json,
    read_yaml,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_json_is_read_as_it_was_written(value):
    if value not in (float("inf"), float("-inf")):
        assert plain_values(
            read_json(json.dumps(value, allow_nan=True).replace("Infinity", "1").encode())
        ) == plain_values(json.loads(json.dumps(value).replace("Infinity", "1")))


@given(st.binary(max_size=60) | texts.map(str.encode))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"\xff\xfe\x00")
@example(b"&a [*a]")
@example(b"? {a: b}\n: c")
@example(b"!!python/object/apply:os.system ['true']")
@example(b"a: !!binary zzz\nb: !!timestamp x")
@example(b"<<: 1")
@example(b"a: 1e400")
def test_whatever_comes_is_read_or_refused(body):
    for read in (read_json, read_yaml):
        try:
            value = read(body)
        except ReadError as error:
            assert str(error)
        else:
            json.dumps(plain_values(value), allow_nan=False)


def test_a_repeated_key_is_kept_in_the_pairs_and_the_last_one_counts():
    tree = read_json(b'{"a":1,"b":2,"a":3}')
    assert tree == {"a": 3, "b": 2}
    assert list(pairs(tree)) == [("a", 1), ("b", 2), ("a", 3)]
    assert list(pairs(read_yaml(b"a: 1\nb: 2\na: 3"))) == [("a", 1), ("b", 2), ("a", 3)]


@pytest.mark.parametrize("text", ["1.0", "1e3", "-0.5", "0.1", "123456789012345678901234567890"])
def test_a_number_that_is_no_integer_keeps_its_text(text):
    number = read_json(text.encode())
    assert isinstance(number, Float)
    assert number.text == text


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert read_json(b'{"\\ud800":"a\\udfffb"}') == {"\ufffd": "a\ufffdb"}
    assert read_json(b'"\\ud83d\\ude00"') == "😀"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("'yes'", "yes"),
        ("n", False),
        ("~", None),
        ("", None),
        ("0x1F", 31),
        ("0b101", 5),
        ("017", 15),
        ("0o17", "0o17"),
        ("1_000", 1000),
        ("-12", -12),
        ("18446744073709551616000", 1.8446744073709552e22),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
        ("190:20:30", "190:20:30"),
        ("2020-01-02", "2020-01-02"),
        ("1.5", 1.5),
        ("1.0", 1),
        ("1e3", 1000),
        ("'1e3'", "1e3"),
        ("1.0e+3", 1000),
        ("!!str 1", "1"),
        ("a: {b: [c, 1]}", {"a": {"b": ["c", 1]}}),
        ("1: a\ntrue: b\n1.5: c", {"1": "a", "true": "b", "1.5": "c"}),
        ("- &x {a: 1, b: 2}\n- <<: *x\n  b: 3", [{"a": 1, "b": 2}, {"a": 1, "b": 3}]),
    ],
)
def test_yaml_scalars_and_maps_become_json(text, value):
    assert read_yaml(text.encode()) == value


@pytest.mark.parametrize(
    "text", ["a: b: c", "[a", "{a: b", "? [1]\n: 2", "%YAML x", "a: *none", ".inf", "-.INF", ".nan"]
)
def test_what_is_no_yaml_is_refused(text):
    with pytest.raises(ReadError, match=r"(?i)yaml: "):
        read_yaml(text.encode())


def test_a_document_of_aliases_cannot_grow_without_end():
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10) if i else 'x'}]" for i in range(12)]
    with pytest.raises(ReadError, match="excessive aliasing"):
        read_yaml("\n".join(levels).encode())


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_nesting_has_an_end(read):
    assert read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(ReadError, match="exceeded max depth"):
        read(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
    with pytest.raises(ReadError, match="exceeded max depth"):
        read(b'{"a":1,"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1))


def test_depth_counts_what_a_repeated_key_hides():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    with pytest.raises(ReadError, match="exceeded max depth"):
        read_json(f'{{"a":{deep},"a":1}}'.encode())
    assert not json_and_yaml.too_deep({"a": [1]})


def test_the_reader_builds_nothing_but_plain_values():
    assert read_yaml(b"!!python/name:os.system") == ""
    assert read_yaml(b"a: !!python/object/apply:os.system ['true']") == {"a": ["true"]}


def test_the_first_document_counts():
    assert read_yaml(b"---\na: 1\n---\na: 2\n") == {"a": 1}
    assert read_yaml(b"# nothing") is None


def test_a_document_has_not_too_many_nodes():
    with pytest.raises(ReadError, match="more than 100000 nodes"):
        read_yaml(b"[" + b"a," * 100_000 + b"]")


odd_texts = st.sampled_from(["a", "b", "kind", "é", "\U0001f600", "\ud800", 'q"', "\\u0041", "1" * 21])
odd_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**18, 10**22)
    | st.floats(allow_nan=False, allow_infinity=False)
    | odd_texts
)
odd_values = st.recursive(
    odd_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_texts, inner, max_size=4),
    max_leaves=20,
)


def _told(tree):
    """A tree with the types of its parts, the text of numbers and all members of objects."""
    if isinstance(tree, dict):
        return type(tree), [(name, _told(part)) for name, part in json_and_yaml.pairs(tree)]
    if isinstance(tree, list):
        return list, [_told(part) for part in tree]
    return type(tree), tree.text if isinstance(tree, Float) else tree


def _read(reader, body):
    try:
        return _told(reader(body))
    except json_and_yaml.ReadError as error:
        return str(error)


@example(b'{"a":1,"a":1}')
@example(b"1" * 21)
@example(b"[" * 300 + b"]" * 300)
@example(b"[1.0,-0,1e400,NaN]")
@example(b'"\xff"')
@example(b"")
@given(
    st.one_of(
        odd_values.map(lambda tree: json.dumps(tree, separators=(",", ":"), ensure_ascii=False)),
        odd_values.map(json.dumps),
    ).map(lambda text: text.encode(errors="surrogatepass"))
)
@example(b"-10000000000000000000")
def test_the_faster_way_reads_what_the_exact_one_reads(body):
    assert _read(read_json, body) == _read(json_and_yaml._read_exactly, body)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"",
        b"tru",
        b'{"a":',
        b"{1:2}",
        b"NaN",
        b"[1 2]",
        b'{"a":1,}',
        b"{} x",
        b"[01]",
        b'"a\nb"',
    ],
)
def test_a_text_that_is_not_json_is_refused_with_the_place(body):
    with pytest.raises(ReadError, match=r"not JSON: .*(line 1|NaN)"):
        read_json(body)


@pytest.mark.parametrize("body", [b"a: [b", b"x: b: c", b"\tx", b"a: *none"])
def test_a_text_that_is_not_yaml_is_refused_with_the_line(body):
    with pytest.raises(ReadError, match=r"not YAML: line [12]: "):
        read_yaml(body)
