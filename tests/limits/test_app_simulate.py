"""What `corelane limits simulate` prints, in every form, and how it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from corelane.app.limits import simulate as app
from corelane.cli import main
from corelane.limits.model.scenario_file import ScenarioError
from corelane.limits.model.studies import BUILTIN, NEIGHBOURS, NGINX

SCENARIO = """
name: shop
machine: {cpus: 2}
seconds: 3
window: {start: 0ms, length: 300ms}
notes: [made up]
pods:
  - name: shop
    containers:
      - name: app & more
        limit: 200m
        pinned: true
        workload: {kind: server, service: 20ms, clients: 4, threads: 4}
  - name: other
    containers:
      - name: job
        workload: {kind: bursts, run: 5ms, every: 50ms}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def simulated(file: str, *changes: str, **more) -> dict:
    found: dict = json.loads(app.render(file, "json", changes=changes, **more))
    return found


def test_json_has_what_cpu_stat_would_show_beside_latency(file):
    found = simulated(file)
    assert (found["scenario"], found["notes"]) == ("shop", ["made up"])
    (case,) = found["cases"]
    one = case["containers"][0]
    assert one["path"] == "shop/app & more"
    assert one["cpusUsed"] == pytest.approx(0.2, abs=0.02)
    assert one["requestsPerSecond"] == pytest.approx(10, abs=1)
    assert (one["periods"], one["throttledPeriods"]) == (30, 30)
    assert one["throttledMsPerSecond"] > 1000
    assert {*one["latencyMs"]} == {"p50", "p90", "p95", "p99", "max"}


def test_variants_stand_beside_the_scenario(file):
    found = simulated(file, "no-limit", "limit=400m", "burst=20ms", "period=20ms", "threads=1", "exclusive=1")
    labels = [case["label"] for case in found["cases"]]
    assert labels[:3] == ["as it is", "as it is, no-limit", "as it is, limit=400m"]
    rate = {
        case["label"].rpartition(", ")[2]: case["containers"][0]["requestsPerSecond"]
        for case in found["cases"]
    }
    assert rate["no-limit"] > 1.8 * rate["limit=400m"] > 3 * rate["as it is"]
    assert rate["exclusive=1"] == pytest.approx(50, abs=2)
    assert rate["period=20ms"] == pytest.approx(rate["as it is"], abs=1.5)


def test_medians_of_several_seeds_are_shown_and_runs_are_reproducible(file):
    assert simulated(file, seeds=3)["cases"][0]["seeds"] == [1, 2, 3]
    assert simulated(file, seed=7) == simulated(file, seed=7)


def test_the_table_has_a_row_for_each_container_and_ends_with_the_notes(file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = app.render(file, "table").splitlines()
    assert "throttled ms/s" in lines[2]
    assert any("shop/app & more" in line and "30 of 30" in line for line in lines)
    assert any("other/job" in line for line in lines)
    assert lines[-1] == "made up"


def test_the_picture_shows_who_ran_where_and_who_was_throttled(file):
    root = ElementTree.fromstring(app.render(file, "svg", changes=["no-limit"]))
    tips = [tip.text or "" for tip in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(tip.startswith("shop/app & more runs on CPU 0 from ") for tip in tips)
    assert any(tip.startswith("shop/app & more is throttled on CPU 1") for tip in tips)
    assert any(tip.startswith("other/job runs") for tip in tips)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"as it is", "as it is, no-limit", "CPU 0", "CPU 1", "quota used up"} <= {*texts}
    assert "a period of shop/app & more begins" in texts
    refills = [
        line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.get("class") == "refill"
    ]
    assert len(refills) == 2 + 3 + 3, "legend of two limits, either in 300 ms; none where nothing is limited"


def test_no_box_leaves_its_picture(file):
    root = ElementTree.fromstring(app.render(file, "svg"))
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if box.get("x"):
            assert float(box.get("x")) + float(box.get("width")) <= width
            assert float(box.get("y")) + float(box.get("height")) <= height


def test_the_large_node_serves_fewer_requests_with_a_long_tail():
    """The bench holds the figures to the published ones; this is the same at a glance."""
    small, large, _ = (
        case["containers"][0] for case in json.loads(app.render("nginx", "json", seconds=3))["cases"]
    )
    assert 2.2 < small["requestsPerSecond"] / large["requestsPerSecond"] < 3.4
    assert large["latencyMs"]["p95"] > 4 * small["latencyMs"]["p95"]
    assert [case.published["requests/s"] for case in NGINX.cases[:2]] == [1221, 455]


def test_neighbours_come_out_in_the_published_order():
    rates = []
    for case in json.loads(app.render("neighbours", "json", seconds=3))["cases"]:
        webs = [one["requestsPerSecond"] for one in case["containers"] if one["path"].startswith("web-")]
        rates.append(sum(webs) / 3)
    for rate, case in zip(rates, NEIGHBOURS.cases, strict=True):
        assert rate == pytest.approx(case.published["requests/s"], rel=0.1)
    assert max(rates[:2]) < rates[2] < rates[3]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_moving_to_more_cpus_makes_the_model_server_slower_and_fewer_threads_mend_it():
    small, large, mended = (
        case["containers"][0] for case in json.loads(app.render("pytorch", "json", seconds=6))["cases"]
    )
    assert large["latencyMs"]["p50"] > 2 * small["latencyMs"]["p50"]
    assert large["throttledMsPerSecond"] > 5 * small["throttledMsPerSecond"]
    assert mended["latencyMs"]["p95"] < large["latencyMs"]["p95"]
    assert mended["throttledMsPerSecond"] < 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pods: [\n", ": not YAML: "),
        ("pods: [\n", "line 2, column 1"),
        ("pods: *x\n", "not YAML"),
        ("a: \x01", "not YAML"),
        ("a: 1\nb: {c: 1, c: 2}\n", ": c: is given twice (mapping from line 2); give it once"),
        ("a: 1\nb: 2\na: 1\n", ": a: is given twice (mapping from line 1); give it once"),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}\n", "machine is missing"),
        ("{}", "machine is missing"),
        ("", "the file: expected fields with values, found None"),
        ("[" * 20_000, ": not YAML: nested too deeply"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, text, words):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        app.render(str(path), "table")
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_a_picture_of_minutes_has_an_axis(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(
        "name: long\nmachine: {cpus: 1}\nseconds: 3600\nwarmup: 0\nwindow: {length: 3600s}\n"
        "pods: [{name: a, containers: [{name: b, workload: {kind: bursts, run: 1ms, every: 600s}}]}]\n"
    )
    texts = ElementTree.fromstring(app.render(str(path), "svg")).iter("{http://www.w3.org/2000/svg}text")
    assert {"0 ms", "600000", "3600000"} <= {one.text for one in texts}


@pytest.mark.parametrize("option", ["simulate nginx --seconds", "watch --interval", "advise --seconds"])
def test_a_time_that_is_not_a_number_is_one_line(option):
    result = CliRunner().invoke(main, ["limits", *option.split(), "nan"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "'nan' is not a number" in result.stderr


def test_a_directory_is_one_line(tmp_path):
    result = CliRunner().invoke(main, ["limits", "simulate", str(tmp_path)])
    line = f"Error: {tmp_path}: a directory, not a scenario file; name one YAML file in it\n"
    assert (result.exit_code, result.stderr) == (2, line)


def test_what_is_neither_a_file_nor_built_in_is_answered_with_the_names():
    with pytest.raises(ScenarioError, match=r"none of the built-in scenarios: nginx, neighbours, pytorch"):
        app.render("nowhere", "table")


def test_a_study_of_several_containers_has_none_to_change():
    with pytest.raises(ScenarioError, match="no single container to change"):
        app.render("neighbours", "table", changes=["no-limit"])


def test_the_command_lists_runs_and_refuses_in_one_line(file):
    def corelane(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["limits", "simulate", *arguments])

    assert [name for name, _ in app.names()] == list(BUILTIN) == ["nginx", "neighbours", "pytorch"]
    assert corelane().stdout.startswith("nginx ")
    assert '"scenario": "shop"' in corelane(file, "--seconds", "0.5", "-o", "json").stdout
    refused = corelane(file, "--variant", "limit=x")
    assert refused.exit_code == 2
    assert (
        refused.stderr == "Error: variant 'limit=x': 'x' is not an amount of CPU: write such as 500m or 1.5\n"
    )


@pytest.mark.parametrize(
    ("variant", "words"),
    [("limit=", "'' is not an amount of CPU"), ("", "changes nothing"), (" , ", "changes nothing")],
)
def test_an_empty_variant_is_not_taken_for_one_without_a_limit(file, variant, words):
    refused = CliRunner().invoke(main, ["limits", "simulate", file, "--variant", variant])
    assert (refused.exit_code, words in refused.stderr) == (2, True)


def test_a_limited_pod_has_its_own_counters_and_the_spread_over_phases(file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    case = simulated(file)["cases"][0]
    (pod,) = case["pods"]
    app_container, job = case["containers"]
    assert pod["path"] == "shop"
    assert pod["cpusUsed"] == app_container["cpusUsed"]
    assert {*pod} == {*app_container} - {"requestsPerSecond", "latencyMs"}
    for one in (pod, app_container):
        assert {*one["phaseSpread"]} == {"phases", "seconds", "seed", "throttledMsPerSecond", "cpusUsed"}
        assert one["phaseSpread"]["phases"] == 41
    assert job["phaseSpread"] is None
    text = app.render(file, "table")
    assert [line for line in text.splitlines() if "shop (pod)" in line and " to " in line]
    assert "least to greatest over 41 equally likely phases" in text


def test_a_pod_without_a_limit_has_no_row(file):
    case = simulated(file, "no-limit")["cases"][1]
    assert case["pods"] == []
    assert all(one["phaseSpread"] is None for one in case["containers"])
