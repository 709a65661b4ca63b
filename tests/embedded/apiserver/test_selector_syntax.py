import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.selector_syntax import (
    Selectors,
    SelectorTerm,
    parse_fields,
    parse_labels,
)

FORMS = "expected KEY, !KEY, KEY=VALUE"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, FORMS) for text in ("=web", "a b", "a=b c", "a in", "a in (b", "a in (!", "a=(", "!")),
        *((text, FORMS) for text in ("a,,b", "a,", ",a", "a in b", "a=b=c", "a in (b) c")),
        ("a in (b c)", 'value "b c" of a'),
        ("a>x", "must be an integer"),
        ("-a", "name must be 1 to 63 letters"),
        ("UP/a", "prefix must be labels joined"),
        ("/a", "prefix must be"),
        ("a/", "name must be 1 to 63 letters"),
        ("a=-b", 'value "-b" of a: '),
        ("a=" + "b" * 64, "must be empty or at most 63 letters"),
        ("a" * 64, "name must be 1 to 63 letters"),
    ],
)
def test_a_text_that_is_not_a_label_selector_is_refused(text, message):
    with pytest.raises(ValueError) as error:
        parse_labels(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("a>b", "can't understand 'a>b'"),
        ("a=b=c", "unescaped character in value: 61"),
        (r"a=b\c", "invalid escape sequence"),
    ],
)
def test_what_is_no_field_selector_says_why(text, message):
    with pytest.raises(ValueError) as error:
        parse_fields(text)
    assert message in str(error.value)


def test_a_selection_needs_all_its_terms_and_knows_the_one_name():
    selection = Selectors(parse_labels("app=web"), parse_fields("metadata.name=x"))
    assert selection.matches({"app": "web"}, {"metadata.name": "x"})
    assert not selection.matches({"app": "web"}, {"metadata.name": "y"})
    assert selection.name == "x"
    assert Selectors().empty
    assert Selectors().named("z").name == "z"


NAMES = st.from_regex(r"[a-z]([-a-z0-9_.]{0,6}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in {"in", "notin"}
)
VALUES = st.sampled_from(["", "a", "web", "12", "x-1"])
TERMS = st.one_of(
    st.builds(lambda k: (k, SelectorTerm(k, "exists")), NAMES),
    st.builds(lambda k: (f"!{k}", SelectorTerm(k, "absent")), NAMES),
    st.builds(lambda k, v: (f"{k}={v}", SelectorTerm(k, "in", frozenset({v}))), NAMES, VALUES),
    st.builds(lambda k, v: (f"{k} != {v}", SelectorTerm(k, "notin", frozenset({v}))), NAMES, VALUES),
    st.builds(
        lambda k, vs: (f"{k} in ({', '.join(vs)})", SelectorTerm(k, "in", frozenset(vs))),
        NAMES,
        st.lists(VALUES, min_size=1, max_size=3),
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TERMS, max_size=4))
def test_what_is_written_is_read_back(terms):
    assert parse_labels(",".join(text for text, _ in terms)) == tuple(term for _, term in terms)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab=!<>(), in\t\\/.-", max_size=20))
def test_no_text_is_more_than_refused(text):
    for parse in (parse_labels, parse_fields):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)
