from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane import quantity
from corelane.quantity import QuantityError

CANONICAL = {
    "0": "0",
    "00": "0",
    "0Mi": "0",
    "-0": "0",
    "0.5": "500m",
    "1.5": "1500m",
    "1500m": "1500m",
    "2000m": "2",
    "100n": "100n",
    "0.1n": "1n",
    "-0.1n": "-1n",
    "1000k": "1M",
    "1024": "1024",
    "1024Ki": "1Mi",
    "1Ki": "1Ki",
    "1023Ki": "1023Ki",
    "1500Mi": "1500Mi",
    "1536Mi": "1536Mi",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "0.3Ki": "307200m",
    "9223372036854775807Ki": "9223372036854775807",
    "2e9": "2e9",
    "12e6": "12e6",
    "100e2": "10e3",
    "1E": "1E",
    "1E3": "1E3",
    "1e-12": "1e-9",
}
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E2"]
texts = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.decimals(0, 10**7, places=3).map(str) | st.integers(0, 10**7).map(str),
    st.sampled_from(SUFFIXES),
)


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_a_quantity_has_the_text_that_upstream_answers(text, canonical):
    assert quantity.canonical(text) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", quantity.WRONG_FORMAT),
        ("abc", quantity.WRONG_FORMAT),
        ("1Qi", quantity.WRONG_FORMAT),
        ("1 Gi", quantity.WRONG_FORMAT),
        ("1e3.5", quantity.WRONG_FORMAT),
        ("\u0661", quantity.WRONG_FORMAT),
        ("1mm", quantity.WRONG_SUFFIX),
        ("1e", quantity.WRONG_SUFFIX),
        ("1e999999999999", quantity.WRONG_NUMBER),
        ("9" * 5000, quantity.WRONG_NUMBER),
    ],
)
def test_what_is_no_quantity_is_refused_with_upstreams_text(text, why):
    with pytest.raises(QuantityError) as refusal:
        quantity.parse(text)
    assert str(refusal.value) == why


def test_values_round_away_from_zero():
    assert quantity.milli("1.0001") == 1001
    assert quantity.milli("-1.0001") == -1001
    assert quantity.value("1Ki") == 1024
    assert quantity.value("100m") == 1
    assert quantity.rounded_to_milli(quantity.parse("100n")).text == "1m"
    assert quantity.rounded_to_milli(quantity.parse("3Gi")).text == "3Gi"


@given(texts)
def test_canonical_text_means_the_same_and_is_stable(text):
    read = quantity.parse(text)
    again = quantity.parse(read.text)
    assert (again.nano, again.text) == (read.nano, read.text)


@given(
    st.integers(-(10**30), 10**30),
    st.sampled_from([quantity.DECIMAL_SI, quantity.BINARY_SI, "DecimalExponent"]),
)
def test_a_quantity_made_from_a_number_reads_back_as_that_number(nano, form):
    made = quantity.of_nano(nano, form)
    if abs(nano) < 2**63 * quantity.NANO:
        assert quantity.parse(made.text).nano == nano


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        read = quantity.parse(text)
    except QuantityError:
        return
    assert quantity.parse(read.text).nano == read.nano


@given(st.integers(0, 10**9), st.integers(0, 999))
def test_decimals_are_exact(whole, thousandths):
    read = quantity.parse(f"{whole}.{thousandths:03d}")
    assert Fraction(read.nano, quantity.NANO) == whole + Fraction(thousandths, 1000)
