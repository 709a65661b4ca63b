"""Durations as Go reads them."""

import pytest

from corelane.kube import go_duration

READ = {
    "0": 0,
    "-0": 0,
    "+5s": 5_000_000_000,
    "1h30m": 5_400_000_000_000,
    "-1.5s": -1_500_000_000,
    ".5ms": 500_000,
    "1.s": 1_000_000_000,
    "3\u00b5s2ns": 3_002,
    "2562047h47m16.854775807s": (1 << 63) - 1,
    "-9223372036854775808ns": -(1 << 63),
}
REFUSED = {
    "": 'invalid duration ""',
    "-": 'invalid duration "-"',
    "x": 'invalid duration "x"',
    ".s": 'invalid duration ".s"',
    "1": 'missing unit in duration "1"',
    "-1": 'missing unit in duration "-1"',
    "1h2": 'missing unit in duration "1h2"',
    "1d": 'unknown unit "d" in duration "1d"',
    "1 s": 'unknown unit " s" in duration "1 s"',
    "1\u00e9": r'unknown unit "\xc3\xa9" in duration "1\xc3\xa9"',
    '1"': r'unknown unit "\"" in duration "1\""',
    "9223372036854775808ns": 'invalid duration "9223372036854775808ns"',
    "3000000h": 'invalid duration "3000000h"',
    "9" * 5000 + "s": f'invalid duration "{"9" * 5000}s"',
}


@pytest.mark.parametrize("text", READ)
def test_a_duration_is_read_in_nanoseconds(text):
    assert go_duration.parse(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_a_duration_is_refused_in_gos_words(text):
    with pytest.raises(go_duration.DurationError) as error:
        go_duration.parse(text)
    assert str(error.value) == f"time: {REFUSED[text]}"
