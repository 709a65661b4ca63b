"""The kubelet's recorded answers: every pick, every admission, every checkpoint."""

import gzip
import json
from pathlib import Path

import pytest

from corelane.app import placement_vectors

DATA = Path(__file__).parents[1] / "data"
TOPOLOGIES = json.loads((DATA / "topologies.json").read_text())


def rows(name):
    return [json.loads(line) for line in gzip.open(DATA / f"{name}.jsonl.gz")]


def test_every_recorded_pick_is_ours():
    replay = placement_vectors.replay_take(rows("kubelet_take"), TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (12_000, 12_000)


def test_every_recorded_node_is_ours_step_by_step_and_byte_by_byte():
    replay = placement_vectors.replay_node(rows("kubelet_node"), TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (2_500, 2_500)


def altered(row, **expect):
    return {**row, "expect": {**row["expect"], **expect}}


def test_a_pick_that_differs_is_shown():
    row = next(row for row in rows("kubelet_take") if "cpus" in row["expect"])
    replay = placement_vectors.replay_take([altered(row, cpus="1")], TOPOLOGIES)
    assert (replay.passed, replay.total) == (0, 1)
    assert 'pick: recorded {"cpus":"1"}, corelane says' in str(replay.differences[0])


@pytest.mark.parametrize("change", [{"checkpoint": ""}, {"steps": []}, {"startError": "x"}])
def test_a_node_that_differs_is_shown(change):
    row = next(row for row in rows("kubelet_node") if row["expect"].get("steps"))
    if "steps" in change:
        change = {"steps": [{**step, "default": "7"} for step in row["expect"]["steps"]]}
    replay = placement_vectors.replay_node([altered(row, **change)], TOPOLOGIES)
    assert (replay.passed, len(replay.differences)) == (0, 1)
