"""`corelane limits watch` on a real kernel's cgroup v2 and its pressure files, in a guest."""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from support import guest

pytestmark = pytest.mark.system

SECONDS = 300
PACKAGES = f"{guest.ROOT / 'src'}:{Path(msgspec.__file__).parents[1]}"
COMMAND = f"""
export PATH=/usr/local/bin:/usr/bin:/bin HOME=/run TMPDIR=/run PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH={shlex.quote(PACKAGES)}
cd {shlex.quote(str(guest.ROOT))}
echo +cpu +cpuset > /sys/fs/cgroup/cgroup.subtree_control
for name in limited crowd above above/inner; do mkdir /sys/fs/cgroup/$name; done
echo +cpu > /sys/fs/cgroup/above/cgroup.subtree_control
echo "20000 100000" > /sys/fs/cgroup/limited/cpu.max
echo "20000 100000" > /sys/fs/cgroup/above/cpu.max
echo 1 > /sys/fs/cgroup/limited/cpuset.cpus
echo 3 > /sys/fs/cgroup/crowd/cpuset.cpus
spin() {{ sh -c 'echo $$ > /sys/fs/cgroup/'$1'/cgroup.procs; while :; do :; done' & }}
spin limited; spin crowd; spin crowd; spin above/inner
sleep 2
cd /sys/fs/cgroup
{shlex.quote(sys.executable)} -m corelane limits watch --once --interval 8 -o json \\
    --cgroup $PWD/limited --cgroup $PWD/crowd --cgroup $PWD/above/inner
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    outcome = guest.run(tmp_path_factory.mktemp("guest"), COMMAND, SECONDS)
    start = outcome.output.find("{")
    assert start >= 0, f"{outcome.output}\n{outcome.console}\nin time: {outcome.in_time}"
    found = json.loads(outcome.output[start:])["containers"]
    return {one["container"]: one for one in found}


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


def test_a_limit_of_the_group_above_is_told_from_its_own(rows):
    """Counted since Linux 6.6 (cpu.stat.local); older kernels leave it to the pressure."""
    row = rows["above/inner"]
    assert row["throttledMsPerSecond"] == 0
    if row["throttledAboveMsPerSecond"] is not None:
        assert row["throttledAboveMsPerSecond"] == pytest.approx(800, abs=100)
        assert row["heldBackBy"][0] == "limit above"
    assert row["waitingMsPerSecond"] > 600
