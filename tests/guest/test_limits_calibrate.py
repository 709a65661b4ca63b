"""The experiments of `corelane limits calibrate` on a real kernel's cgroup v2."""

from pathlib import Path

import pytest

from corelane.app.limits import calibrate as app
from corelane.kernel import cgroup
from corelane.kernel.cgroupfs import CgroupError
from corelane.limits.model.bandwidth import refusal

NAMES = ("spin 1 x 20/100", "spin 2 x 100/100", "bursts 1 x 20/100+20, 70 ms each 1000")
LIMITS = (
    (999, 100_000, 0),
    (1000, 999, 0),
    (1000, 1000, 0),
    (20_000, 100_000, 20_000),
    (20_000, 100_000, 20_001),
    (1000, 1_000_001, 0),
)


@pytest.fixture
def groups():
    """cgroup v2, of which nothing of ours is left at the end."""
    found = cgroup.find()
    assert found.version == 2
    yield found
    assert not [path.name for path in Path("/sys/fs/cgroup").iterdir() if "corelane" in path.name]


def test_experiments_run_on_cgroup_v2(groups):
    """Emulated, on a host with other work: what noise cannot touch is held, errors are the bench's."""
    experiments = [one for name in NAMES for one in app.chosen(name) if one.name == name]
    found = app.measure(experiments, 1, 1)
    assert found.run_delay.includes_throttled is True, found.run_delay
    one, two, burst = app.view.as_json(found.rows)
    for row, width in ((one, 1), (two, 2)):
        seen = row["measured"]
        assert abs(seen["periods"] - 50) <= 3
        assert seen["throttled"] <= seen["periods"]
        assert seen["use_ms"] <= 1.2 * row["quotaMs"] * 51
        assert 0 < seen["throttled_ms"] <= width * 5500
    assert burst["measured"]["bursts"] > 0


def test_the_kernel_refuses_the_limits_that_the_model_refuses(groups):
    group = cgroup.join("einval")
    groups.create(group)
    burst_file = groups.directories(group)[0] / "cpu.max.burst"

    def refused(quota, period, burst):
        try:
            groups.files.write(burst_file, "0")
            groups.set_quota(group, quota, period)
            groups.files.write(burst_file, str(burst))
        except CgroupError:
            return True
        return False

    answers = {limit: refused(*limit) for limit in LIMITS}
    groups.delete(group)
    groups.prune(cgroup.OWN)
    assert answers == {limit: refusal(*limit) is not None for limit in LIMITS}
