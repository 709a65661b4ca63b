"""The kubelet's recorded answers: every pick, every admission, every checkpoint."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance import nodes, picks
from conformance.__main__ import main

DATA = Path(__file__).parents[1] / "data"
TOPOLOGIES = json.loads((DATA / "topologies.json").read_text())


@cache
def rows(name):
    return [json.loads(line) for line in gzip.open(DATA / f"{name}.jsonl.gz")]


def test_every_recorded_pick_is_ours():
    replay = picks.replay_take(rows("kubelet_take"), TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (12_000, 12_000)


def test_every_recorded_node_is_ours_step_by_step_and_byte_by_byte():
    replay = nodes.replay_node(rows("kubelet_node"), TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (2_500, 2_500)


def test_every_recorded_pick_of_koordinator_is_ours():
    replay = picks.replay_koordinator(rows("koordinator_take"), TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (8_000, 8_000)


def altered(row, **expect):
    return {**row, "expect": {**row["expect"], **expect}}


def test_a_pick_that_differs_is_shown():
    row = next(row for row in rows("kubelet_take") if "cpus" in row["expect"])
    replay = picks.replay_take([altered(row, cpus="1")], TOPOLOGIES)
    assert (replay.passed, replay.total) == (0, 1)
    assert 'pick: recorded {"cpus":"1"}, corelane answers' in str(replay.differences[0])


@pytest.mark.parametrize("change", [{"checkpoint": ""}, {"steps": []}, {"startError": "x"}])
def test_a_node_that_differs_is_shown(change):
    row = next(row for row in rows("kubelet_node") if row["expect"].get("steps"))
    if "steps" in change:
        change = {"steps": [{**step, "default": "7"} for step in row["expect"]["steps"]]}
    replay = nodes.replay_node([altered(row, **change)], TOPOLOGIES)
    assert (replay.passed, len(replay.differences)) == (0, 1)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.mark.parametrize("name", ["kubelet_take", "kubelet_node", "koordinator_take"])
def test_the_command_counts_by_topology_and_exits_with_0_when_all_passed(tmp_path, name):
    path = written(tmp_path / "v.jsonl", rows(name)[:40])
    result = run(path, "--topologies", DATA / "topologies.json")
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "passed 40 of 40"
    assert result.output.splitlines()[0].split()[0] == rows(name)[0]["topo"]


def mutated(name):
    if name != "kubelet_node":
        row = next(row for row in rows(name) if "error" in row["expect"])
        return altered(row, error=row["expect"]["error"] + "!")
    row = next(row for row in rows(name) if row["expect"].get("steps"))
    return altered(row, checkpoint=row["expect"]["checkpoint"].replace("checksum", "Checksum"))


@pytest.mark.parametrize("name", ["kubelet_take", "kubelet_node", "koordinator_take"])
def test_the_command_notices_a_mutated_expectation_and_shows_it_in_full(tmp_path, name):
    (tmp_path / "topologies.json").write_text(json.dumps(TOPOLOGIES))
    path = written(tmp_path / "v.jsonl", [*rows(name)[:3], mutated(name)])
    result = run(path)
    assert result.exit_code == 1
    assert f"row {mutated(name)['id']}, " in result.output
    assert result.output.splitlines()[-1] == "passed 3 of 4"


def fault(path, *more):
    result = run(path, *more)
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    return line


def test_missing_topologies_and_malformed_rows_are_one_line(tmp_path):
    row = rows("kubelet_take")[0]
    path = written(tmp_path / "v.jsonl", [row])
    assert "topologies.json" in fault(path)
    (tmp_path / "topologies.json").write_text('{"x": [[0, 0]]}')
    assert "topology 'x' is not a list" in fault(path)
    (tmp_path / "topologies.json").write_text("{}")
    assert f"row 1: topology '{row['topo']}' is not in" in fault(path)
    written(path, [row, {key: value for key, value in row.items() if key != "uncore"}])
    assert "malformed: KeyError: 'uncore'" in fault(path, "--topologies", DATA / "topologies.json")
