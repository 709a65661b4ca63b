"""`corelane limits calibrate` ended in the middle leaves no group, and what it cannot do is one line."""

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.kernel import cgroup
from corelane.limits.calibration.experiments import (
    EXPERIMENTS,
    PROBED_PERIODS,
    QUIET_PERIODS,
    WARMUP_SECONDS,
    Experiment,
)
from support import real_cgroups


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "corelane", "limits", "calibrate", *arguments]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal_it_leaves_no_group_and_no_process(number):
    with real_cgroups.instance() as (groups, _):
        before = groups.children(cgroup.OWN)
        arguments = command("--only", "spin 1 x 20/100", "--attempts", "50", "--runs", "50")
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "schedstat run_delay\n"
            mine = {name for name in groups.children(cgroup.OWN) if name.startswith("calibrate-")} - {*before}
            process.send_signal(number)
            _, errors = process.communicate(timeout=180)
        finally:
            process.kill()
            process.wait()
        assert process.returncode != 0
        assert "Traceback" not in errors
        assert not mine & {*groups.children(cgroup.OWN)}


def test_an_unknown_experiment_is_answered_with_those_there_are():
    run = CliRunner().invoke(main, ["limits", "calibrate", "--only", "spin 99"])
    assert run.exit_code == 2
    start = "Error: no experiment has 'spin 99' in its name; there are spin 1 x 10/100; "
    assert run.stderr.startswith(start)


def test_help_states_the_duration_of_the_experiments():
    """With what comes before each; 4:25 minutes were measured on a busy machine, one attempt each."""

    def seconds(experiment: Experiment) -> float:
        start, periods = 0.3, 0  # to start threads, read counters and find the tick
        if experiment.pod_quota_ms or experiment.run_ms:
            periods = (PROBED_PERIODS + QUIET_PERIODS) * (2 if experiment.pod_quota_ms else 1)
        else:
            start += WARMUP_SECONDS
        return start + periods * experiment.period_ms / 1000 + experiment.seconds

    shortest = sum(map(seconds, EXPERIMENTS)) / 60
    assert (
        f"Takes {shortest:.0f} to {shortest + 1:.0f} minutes"
        in CliRunner().invoke(main, ["limits", "calibrate", "--help"]).output
    )
