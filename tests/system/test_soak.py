"""`make soak`, shortened: the same steps as in an hour, a few of each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
SHORT = {"churn": 0, "pods": 50, "watches": 50, "kills": 8, "faults": 12, "steady": 60, "idle": 25}
"""About three minutes on two cores. Memory is judged in the long run alone: it takes half an hour."""
SEED = os.environ.get("CORELANE_SEED", "")


def test_corelane_up_survives_kills_and_broken_files_and_leaves_nothing():
    arguments = [part for name, value in SHORT.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, str(ROOT / "bench" / "soak.py"), *arguments]
    done = subprocess.run(
        [*command, *(["--seed", SEED] if SEED else [])],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n")
    report = json.loads((ROOT / "build" / "bench" / "soak-report.json").read_text())
    assert report["breaches"] == [], f"seed {report['options']['seed']}; logs in build/bench/soak-logs"
    assert [phase["name"] for phase in report["phases"]] == [
        "start",
        "broken files",
        "kills",
        "steady",
        "end",
    ]
    assert len(report["steps"]) == SHORT["faults"]
    assert all(report["checked"].values()), report["checked"]
    figures = {"idle_core_share", "memory_mb", "start_median_s"}  # `make soak` judges them: machines differ
    assert figures <= report["figures"].keys(), done.stderr
