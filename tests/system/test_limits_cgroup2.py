"""The experiments of `corelane limits calibrate` on a real kernel's cgroup v2, in a guest."""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from support import guest

pytestmark = pytest.mark.system

SECONDS = 300
CODE = """
import json, os
from corelane.app.limits import calibrate as app
from corelane.kernel import cgroup
from corelane.kernel.cgroupfs import CgroupError
from corelane.limits.model.bandwidth import refusal

names = ("spin 1 x 20/100", "spin 2 x 100/100", "bursts 1 x 20/100+20")
experiments = [one for name in names for one in app.chosen(name) if one.name.startswith(name)]
rows = app.view.as_json(app.measure(experiments, 1, 1))

groups, answers = cgroup.find(), []
group = cgroup.join("einval")
groups.create(group)
for quota, period, burst in ((999, 100000, 0), (1000, 999, 0), (1000, 1000, 0), (20000, 100000, 20000),
                             (20000, 100000, 20001), (1000, 1000001, 0)):
    try:
        groups.files.write(groups.directories(group)[0] / "cpu.max.burst", "0")
        groups.set_quota(group, quota, period)
        groups.files.write(groups.directories(group)[0] / "cpu.max.burst", str(burst))
        refused = False
    except CgroupError:
        refused = True
    answers.append([quota, period, burst, refused, refusal(quota, period, burst) is not None])
groups.delete(group)
groups.prune(cgroup.OWN)
left = [name for name in os.listdir("/sys/fs/cgroup") if "corelane" in name]
print(json.dumps({"version": groups.version, "rows": rows, "einval": answers, "left": left}))
"""
COMMAND = f"""
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/run TMPDIR=/run PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH={shlex.quote(f"{guest.ROOT / 'src'}:{Path(msgspec.__file__).parents[1]}")}
cd {shlex.quote(str(guest.ROOT))}
{shlex.quote(sys.executable)} -c {shlex.quote(CODE)}
"""


def test_experiments_run_on_cgroup_v2_and_leave_nothing(tmp_path):
    """Emulated, on a host with other work: what noise cannot touch is held, errors are the bench's."""
    outcome = guest.run(tmp_path, COMMAND, SECONDS)
    told = [line for line in outcome.output.splitlines() if line.startswith("{")]
    assert told, f"{outcome.output}\n{outcome.console}\nin time: {outcome.in_time}"
    facts = json.loads(told[-1])
    assert facts["version"] == 2
    assert facts["left"] == []
    assert all(refused == said for *_, refused, said in facts["einval"]), facts["einval"]
    one, two, burst = facts["rows"]
    for row, width in ((one, 1), (two, 2)):
        seen = row["measured"]
        assert abs(seen["periods"] - 50) <= 3
        assert seen["throttled"] <= seen["periods"]
        assert seen["use_ms"] <= 1.2 * row["quotaMs"] * 51
        assert 0 < seen["throttled_ms"] <= width * 5500
    assert burst["measured"]["bursts"] > 0
