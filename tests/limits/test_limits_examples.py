"""The article's worked examples, examples/limits/*.yaml, give the article's figures."""

import json
from pathlib import Path

import pytest

from corelane.app.limits import simulate

EXAMPLES = Path(__file__).parents[2] / "examples/limits"


def containers(name: str, *changes: str) -> list[dict]:
    """The only container's figures of every case, or those of every container of the only case."""
    found = json.loads(simulate.render(str(EXAMPLES / f"{name}.yaml"), "json", changes=changes))
    return [one for case in found["cases"] for one in case["containers"]]


def test_70_ms_under_a_limit_of_200m_take_more_than_300_ms_at_35_percent_of_the_limit():
    limited, free = containers("long-request", "no-limit")
    assert limited["latencyMs"]["p50"] == pytest.approx(70 + 3 * 80, rel=0.01)
    assert limited["cpusUsed"] == pytest.approx(0.07)
    assert limited["throttledMsPerSecond"] == pytest.approx(3 * 80)
    assert limited["throttledPeriods"] == 3 * 10
    assert free["latencyMs"]["p50"] == pytest.approx(70, rel=0.01)


def test_requests_are_weights_on_a_cpu_that_all_want():
    shares = {one["path"]: one["cpusUsed"] for one in containers("weights")}
    requested = {"node/daemons": 0.006, "a/app": 0.1, "b/app": 0.2, "c/app": 0.694}
    assert shares == pytest.approx(requested, abs=0.002)
