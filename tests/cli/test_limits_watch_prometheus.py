"""`corelane limits watch --prometheus` on a stand-in: what it asks, and what it makes of the answers."""

import json

import pytest
from click.testing import CliRunner, Result

from corelane.app.limits import prometheus
from corelane.cli import main
from support import prometheus_fake
from support.cpu_groups import Clock, use_clock


def request(fake, *args: object) -> Result:
    command = ["limits", "watch", "--prometheus", fake.url, "--once", "-o", "json"]
    return CliRunner().invoke(main, [*command, *map(str, args)])


def rows(result: Result) -> dict[str, dict]:
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["containers"]
    return {f"{one['namespace']}/{one['pod']}/{one['container']}": one for one in found}


def notes(result: Result) -> list[str]:
    return json.loads(result.stdout)["notes"]


LABELS = {"namespace": "shop", "pod": "web-1", "container": "app", "id": "/kubepods/x", "node": "n1"}


def series(fake, metric: str, *values: float, start: float = 1000.0, **labels: str) -> None:
    fake.add(metric, [(start + 15 * i, value) for i, value in enumerate(values)], **{**LABELS, **labels})


@pytest.fixture
def fake():
    with prometheus_fake.serving() as found:
        series(found, "container_cpu_usage_seconds_total", 0, 3, 6)
        series(found, "container_cpu_cfs_throttled_seconds_total", 5, 17, 29)
        series(found, "container_cpu_cfs_periods_total", 0, 150, 300)
        series(found, "container_cpu_cfs_throttled_periods_total", 0, 150, 300)
        series(found, "container_spec_cpu_quota", 20_000)
        series(found, "container_spec_cpu_period", 100_000)
        yield found


def test_prometheus_tells_the_same_as_cgroups(fake):
    (row,) = rows(request(fake)).values()
    assert (row["usedMsPerSecond"], row["throttledMsPerSecond"], row["lostShare"]) == (200, 800, 0.8)
    assert (row["cpuLimitMillis"], row["stallMs"], row["node"], row["cost"]) == (200, 80, "n1", "high")
    assert row["heldBackBy"] == ["limit"]


def test_pods_and_sandboxes_are_not_taken_for_containers(fake):
    series(fake, "container_cpu_usage_seconds_total", 0, 9, container="")
    series(fake, "container_cpu_usage_seconds_total", 0, 9, container="POD")
    assert len(rows(request(fake))) == 1


def test_prometheus_is_asked_for_what_is_selected(fake):
    series(fake, "container_cpu_usage_seconds_total", 0, 1, pod="db-1")
    series(fake, "container_cpu_usage_seconds_total", 0, 1, pod="web-2", namespace="other")
    assert list(rows(request(fake, "-n", "shop", "--pod", "web-*"))) == ["shop/web-1/app"]
    assert list(rows(request(fake, "--window", "1h", "--pod", "d?-1"))) == ["shop/db-1/app"]
    assert fake.queries[-1].startswith("container_spec_cpu_period{")
    assert "[1h]" in "".join(fake.queries)


def test_missing_metrics_are_said_with_what_that_means(fake):
    fake.series = [one for one in fake.series if "cfs" not in one[0]["__name__"]]
    result = request(fake)
    (row,) = rows(result).values()
    assert row["throttledMsPerSecond"] is None
    assert row["heldBackBy"] == ["unknown"]
    assert any("container_cpu_cfs_periods_total" in note for note in notes(result))
    fake.series.clear()
    assert any("cadvisor" in note for note in notes(request(fake)))


def test_restarts_gaps_and_silence_are_said(fake):
    fake.series.clear()
    series(fake, "container_cpu_usage_seconds_total", 0, 3, 1, 4, container="back")
    fake.add("container_cpu_usage_seconds_total", [(1000, 0), (1015, 1), (1030, 2), (1300, 3)], **LABELS)
    series(fake, "container_cpu_usage_seconds_total", 0, 1, 2, container="ended")
    series(fake, "container_cpu_usage_seconds_total", 0, 1, container="again", id="/old")
    series(fake, "container_cpu_usage_seconds_total", 0, 1, start=1270, container="again", id="/new")
    series(fake, "container_cpu_usage_seconds_total", 0, container="young")
    found = {one["container"]: [*one["notes"], *one["remarks"]] for one in rows(request(fake)).values()}
    assert "restarted 1 time" in found["back"][0]
    assert "no samples for 270 s" in found["app"][0]
    assert "no sample for the last 270 s" in found["ended"][-1]
    assert "only its latest run" in found["again"][0]
    assert "1 sample only" in found["young"][0]


def test_pressure_and_run_queues_are_used_where_cadvisor_has_them(fake):
    series(fake, "container_pressure_cpu_waiting_seconds_total", 0, 15, 30)
    (row,) = rows(request(fake)).values()
    assert row["waitingMsPerSecond"] == 1000
    assert row["heldBackBy"] == ["limit", "neighbours or own threads"]


def test_odd_samples_are_left_out_and_what_is_no_number_is_refused(fake):
    series(fake, "container_spec_cpu_quota", float("nan"), container="odd")
    series(fake, "container_cpu_usage_seconds_total", 0, float("nan"), 6, container="odd")
    row = rows(request(fake))["shop/web-1/odd"]
    assert (row["usedMsPerSecond"], row["cpuLimitMillis"]) == (200, None)
    fake.series[0][1][0] = (1000, "half")
    assert "'half' is not a number" in request(fake).stderr


def test_an_outage_between_rounds_is_a_note_and_the_watch_goes_on(fake, monkeypatch):
    def fails() -> None:
        fake.raw = (503, b"restarting")

    def works() -> None:
        fake.raw = None

    use_clock(monkeypatch, Clock(fails, works))
    command = ["limits", "watch", "--prometheus", fake.url, "--count", "3", "-o", "json"]
    lines = [json.loads(line) for line in CliRunner().invoke(main, command).stdout.splitlines()]
    assert [len(one["containers"]) for one in lines] == [1, 0, 1]
    assert "HTTP 503: restarting: next try" in lines[1]["notes"][0]


def test_a_token_is_shown_to_prometheus(fake, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    request(fake, "--bearer-token-file", token)
    assert {one["Authorization"] for one in fake.headers} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ((401, b"go away"), "HTTP 401: go away: a token is required (--bearer-token-file)"),
        ((400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'), "HTTP 400: parse error"),
        ((503, b""), "HTTP 503"),
        ((200, b"<html>"), "not an answer of Prometheus"),
        (
            (200, b'{"status":"success","data":{"result":[{"metric":{},"values":3}]}}'),
            "not an answer of Prometheus",
        ),
        ((200, b'{"status":"error","error":"overloaded"}'), "overloaded"),
    ],
)
def test_what_prometheus_refuses_is_one_line_with_its_address(fake, raw, words):
    fake.raw = raw
    result = request(fake)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert fake.url in line
    assert words in line


def test_a_token_goes_nowhere_but_to_the_address_that_was_given(fake, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    with prometheus_fake.serving() as elsewhere:
        fake.raw, fake.sent = (302, b""), {"Location": f"{elsewhere.url}/login"}
        result = request(fake, "--bearer-token-file", token)
        assert elsewhere.headers == []
    assert result.exit_code == 2
    assert f"redirects to '{elsewhere.url}/login'" in result.stderr


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff\xfe", b"caf\xc3\xa9"])
def test_what_no_header_can_hold_is_no_token(fake, tmp_path, content):
    token = tmp_path / "token"
    token.write_bytes(content)
    result = request(fake, "--bearer-token-file", token)
    assert result.exit_code == 2
    assert f"{token}: holds no token" in result.stderr
    assert fake.queries == []


def test_answers_are_bounded_in_size_and_in_time(fake, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(prometheus, "_LARGEST", 100)
        assert "larger than 0 MiB: choose a namespace" in request(fake).stderr
    monkeypatch.setattr(prometheus.time, "monotonic", iter(range(0, 10_000, 40)).__next__)
    assert "took longer than 30 s" in request(fake).stderr


def test_a_partial_result_is_said(fake):
    fake.raw = (200, b'{"status":"success","data":{"result":[]},"warnings":["store x is down"]}')
    assert f"{fake.url} warns: store x is down" in notes(request(fake))


def test_a_counter_with_a_series_for_every_cpu_is_their_sum(fake):
    metric = "container_cpu_usage_seconds_total"
    for cpu, amounts in (("cpu00", (1, 2, 4)), ("cpu01", (5, 8, 11))):
        series(fake, metric, *amounts, container="two", cpu=cpu)
        series(fake, metric, *amounts, container="both", cpu=cpu)
    series(fake, metric, 6, 9, 12, container="both", cpu="total")
    found = {one["container"]: one["usedMsPerSecond"] for one in rows(request(fake)).values()}
    assert (found["two"], found["both"]) == (300, 200)


def test_a_small_gap_spoils_nothing_and_is_remarked(fake):
    fake.series.clear()
    times = [*range(0, 600, 15), *range(645, 1200, 15)]
    fake.add("container_cpu_usage_seconds_total", [(at, at / 5) for at in times], **LABELS)
    (row,) = rows(request(fake)).values()
    assert row["notes"] == []
    assert "no samples for 60 s" in row["remarks"][0]
    assert row["usedMsPerSecond"] == pytest.approx(200)
