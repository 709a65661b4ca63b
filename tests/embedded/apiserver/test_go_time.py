"""Times are read, and refused, as by Go's `time.Parse`: 2,500 recorded answers, and what they cannot show."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.codec.go_time import MICROSECONDS, SECONDS, TimeError, canonical

RECORDED = Path(__file__).parents[2] / "data" / "go_times.jsonl.gz"


def test_every_recorded_text_is_read_or_refused_as_by_go():
    cases = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    assert len(cases) == 2500
    for case in cases:
        try:
            answer = {"time": canonical(case["text"], case["layout"])}
        except TimeError as error:
            answer = {"error": str(error)}
        assert {"text": case["text"], "layout": case["layout"], **answer} == case


@pytest.mark.parametrize("layout", [SECONDS, MICROSECONDS])
def test_the_zero_time_is_no_time(layout):
    assert canonical("0001-01-01T00:00:00.000000Z", layout) is None


offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 2), datetime(9998, 12, 30), timezones=offsets)  # noqa: DTZ001


@given(moments)
def test_every_moment_is_read_back_in_utc(moment):
    text = moment.isoformat(timespec="microseconds")
    utc = moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert canonical(text, MICROSECONDS) == utc
    assert canonical(text, SECONDS) == f"{utc[:19]}Z"


@given(st.text(), st.sampled_from([SECONDS, MICROSECONDS]))
def test_any_text_is_read_or_refused(text, layout):
    try:
        canonical(text, layout)
    except TimeError as error:
        assert str(error).startswith("parsing time ")
