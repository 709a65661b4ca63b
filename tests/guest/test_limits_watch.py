"""`corelane limits watch` on a real kernel's cgroup v2 and its pressure files."""

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main

TOP = Path("/sys/fs/cgroup")
LIMITED, CROWD, ABOVE, INNER = (TOP / name for name in ("limited", "crowd", "above", "above/inner"))
LIGHT, HEAVY = TOP / "light", TOP / "heavy"
SPIN = "echo $$ >$0/cgroup.procs; while :; do :; done"
WATCH = ["limits", "watch", "--once", "--interval", "8", "-o", "json"]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    (TOP / "cgroup.subtree_control").write_text("+cpu +cpuset")
    try:
        _make_groups()
        for group in (LIMITED, CROWD, CROWD, INNER, LIGHT, HEAVY):
            subprocess.Popen(["sh", "-c", SPIN, group])
        time.sleep(2)
        groups = [f"--cgroup={group}" for group in (LIMITED, CROWD, INNER, LIGHT)]
        done = CliRunner().invoke(main, [*WATCH, *groups])
    finally:
        _remove_groups()
    assert done.exit_code == 0, done.output
    return {row["container"]: row for row in json.loads(done.stdout)["containers"]}


def _make_groups() -> None:
    for group in (LIMITED, CROWD, ABOVE, LIGHT, HEAVY):
        group.mkdir()
    (ABOVE / "cgroup.subtree_control").write_text("+cpu")
    INNER.mkdir()
    for group in (LIMITED, ABOVE):
        (group / "cpu.max").write_text("20000 100000")
    (LIMITED / "cpuset.cpus").write_text("1")
    (CROWD / "cpuset.cpus").write_text("3")
    for group in (LIGHT, HEAVY):
        (group / "cpuset.cpus").write_text("2")
    (HEAVY / "cpu.weight").write_text("300")


def _remove_groups() -> None:
    for group in (LIMITED, CROWD, INNER, ABOVE, LIGHT, HEAVY):
        with suppress(OSError):
            (group / "cgroup.kill").write_text("1")
            while (group / "cgroup.procs").read_text():
                time.sleep(0.1)
            group.rmdir()


def test_a_busy_loop_at_a_fifth_of_a_cpu_is_throttled_for_the_rest(rows):
    row = rows["limited"]
    assert row["cpuLimitMillis"] == 200
    assert row["usedMsPerSecond"] == pytest.approx(200, abs=40)
    assert row["throttledMsPerSecond"] == pytest.approx(800, abs=80)
    assert row["waitingMsPerSecond"] == pytest.approx(800, abs=120), "throttling is pressure"
    assert row["heldBackBy"][0] == "limit"
    assert row["cost"] == "high"


def test_threads_that_share_a_cpu_among_themselves_are_not_the_neighbours(rows):
    row = rows["crowd"]
    assert row["throttledMsPerSecond"] == 0
    assert row["waitingMsPerSecond"] > 700
    assert row["heldBackBy"] == ["own threads"]
    assert row["cost"] == "none"


def test_a_heavier_group_on_the_same_cpu_takes_what_its_weight_allows(rows):
    """Pressure is an independent count: on one CPU, all wait as long as others run."""
    row = rows["light"]
    assert row["heldBackBy"] == ["neighbours"], json.dumps(row)
    lost = row["lostTo"]
    assert lost["neighboursMsPerSecond"] == pytest.approx(750, abs=100)
    assert lost["neighboursMsPerSecond"] == pytest.approx(row["stalledMsPerSecond"], abs=60)
    assert lost["neighboursMsPerSecond"] == pytest.approx(lost["totalMsPerSecond"], abs=20)
    rivals = row["competition"]
    assert rivals["leastShare"] < 0.3
    assert any(each["group"].endswith("/heavy") and each["weight"] == 3072 for each in rivals["competitors"])


def test_what_a_limit_and_own_threads_take_is_their_whole_loss(rows):
    limited, crowd = rows["limited"]["lostTo"], rows["crowd"]["lostTo"]
    assert limited["limitMsPerSecond"] == pytest.approx(800, abs=80)
    assert limited["neighboursMsPerSecond"] < 80
    assert crowd["ownThreadsMsPerSecond"] == pytest.approx(1000, abs=80)
    assert crowd["limitMsPerSecond"] == 0


def test_a_limit_of_the_group_above_is_told_from_its_own(rows):
    """Counted since Linux 6.6 (cpu.stat.local); older kernels leave it to the pressure."""
    row = rows["above/inner"]
    assert row["throttledMsPerSecond"] == 0
    if row["throttledAboveMsPerSecond"] is not None:
        assert row["throttledAboveMsPerSecond"] == pytest.approx(800, abs=100)
        assert row["heldBackBy"][0] == "limit above"
    assert row["waitingMsPerSecond"] > 600
