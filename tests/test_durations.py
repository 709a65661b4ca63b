"""Durations as Go reads and writes them."""

import pytest

from corelane import durations

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
REFUSED = ("", "-", "x", ".s", "1", "-1", "1h2", "1d", "1 s", "1\u00e9", '1"', "s", "1sx", "x1s", "+-1s")
TOO_LONG = ("9223372036854775808ns", "3000000h", "9" * 5000 + "s", "1" + "0" * 25 + "s")


@pytest.mark.parametrize("text", READ)
def test_a_duration_is_read_in_nanoseconds(text):
    assert durations.parse(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED + TOO_LONG)
def test_what_is_not_a_duration_is_refused_by_its_value(text):
    with pytest.raises(durations.DurationError, match="is not a duration such as 300ms") as error:
        durations.parse(text)
    assert str(error.value).startswith(repr(text[:80]))


def test_seconds_are_written_as_go_does() -> None:
    assert [durations.text(seconds) for seconds in (5, 60, 90, 900, 3605, 1.5)] == [
        *("5s", "1m0s", "1m30s", "15m0s", "1h0m5s", "1.5s")
    ]
