"""A real Prometheus scrapes what cAdvisor would serve, and `corelane limits watch` reads it from there.

Needs the program `prometheus` (Debian's package, or CORELANE_PROMETHEUS naming it).
"""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from corelane.cli import main

pytestmark = pytest.mark.system

PROGRAM = os.environ.get("CORELANE_PROMETHEUS") or shutil.which("prometheus")
CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}
scrape_configs:
- job_name: cadvisor
  static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""
BUSY = {"namespace": "shop", "pod": "web-1", "container": "app", "id": "/busy"}
RESTARTED = {**BUSY, "container": "flaky", "id": "/flaky"}
FREE = {**BUSY, "container": "free", "id": "/free"}


def labels(names: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{text}"' for name, text in names.items()) + "}"


def metrics(seconds: float) -> str:
    """A container that wants a CPU and has a fifth, one that began anew after 6 s, one without limit."""
    lines = []
    for who, age in ((BUSY, seconds), (RESTARTED, seconds - 6 if seconds > 6 else seconds)):
        lines += [
            f"container_cpu_usage_seconds_total{labels(who)} {0.2 * age}",
            f"container_cpu_cfs_throttled_seconds_total{labels(who)} {0.8 * age}",
            f"container_cpu_cfs_periods_total{labels(who)} {int(10 * age)}",
            f"container_cpu_cfs_throttled_periods_total{labels(who)} {int(10 * age)}",
            f"container_spec_cpu_quota{labels(who)} 20000",
            f"container_spec_cpu_period{labels(who)} 100000",
        ]
    lines.append(f"container_cpu_usage_seconds_total{labels(FREE)} {seconds}")
    lines.append(f"container_cpu_usage_seconds_total{labels({**BUSY, 'container': ''})} {seconds}")
    return "\n".join(lines) + "\n"


@contextmanager
def exporter():
    """Its port."""
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = metrics(time.monotonic() - started).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    if PROGRAM is None:
        pytest.skip(
            "needs the program prometheus: apt-get install prometheus, or name it in CORELANE_PROMETHEUS"
        )
    directory, port = tmp_path_factory.mktemp("prometheus"), free_port()
    with exporter() as target:
        (directory / "prometheus.yml").write_text(CONFIG.format(port=target))
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await_samples(url, 16, process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def await_samples(url: str, count: int, process: subprocess.Popen) -> None:
    query = f"{url}/api/v1/query?query=count_over_time(up%5B1m%5D)"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "prometheus ended"
        try:
            with urllib.request.urlopen(query, timeout=5) as answer:
                result = json.load(answer)["data"]["result"]
                if result and int(result[0]["value"][1]) >= count:
                    return
        except OSError:
            pass
        time.sleep(0.3)
    pytest.fail("prometheus has no samples after 90 s")


def watch(url: str, *args: str):
    return CliRunner().invoke(
        main, ["limits", "watch", "--prometheus", url, "--once", "-o", "json", "--window", "1m", *args]
    )


def test_what_a_real_prometheus_has_is_what_was_counted(prometheus):
    found = json.loads(watch(prometheus).stdout)["containers"]
    rows = {one["container"]: one for one in found}
    assert set(rows) == {"app", "flaky", "free"}
    app = rows["app"]
    assert app["usedMsPerSecond"] == pytest.approx(200, rel=0.05)
    assert app["throttledMsPerSecond"] == pytest.approx(800, rel=0.05)
    assert app["lostShare"] == pytest.approx(0.8, abs=0.01)
    assert app["stallMs"] == pytest.approx(80, rel=0.15)
    assert app["cpuLimitMillis"] == 200
    assert (app["cost"], app["heldBackBy"]) == ("high", ["limit"])
    assert rows["free"]["usedMsPerSecond"] == pytest.approx(1000, rel=0.05)
    assert rows["free"]["cpuLimitMillis"] is None


def test_a_counter_that_began_anew_is_counted_through_and_said(prometheus):
    (row,) = [
        one for one in json.loads(watch(prometheus).stdout)["containers"] if one["container"] == "flaky"
    ]
    assert any("restarted 1 time" in note for note in row["notes"])
    assert 700 < row["throttledMsPerSecond"] < 850


def test_selection_is_prometheus_own(prometheus):
    assert json.loads(watch(prometheus, "-n", "other").stdout)["containers"] == []
    assert len(json.loads(watch(prometheus, "-n", "shop", "--pod", "w?b-*").stdout)["containers"]) == 3
    assert json.loads(watch(prometheus, "--pod", 'x"}').stdout)["containers"] == []


def test_what_prometheus_calls_an_error_is_said_in_its_words(prometheus):
    result = watch(prometheus, "--window", "9999999999d")
    assert result.exit_code == 2
    assert "HTTP 400" in result.stderr
    assert "duration" in result.stderr
