"""A daemon that a signal ends has closed its connections, also those that never reached a server."""

import os
import signal
import subprocess
import sys
import time

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: abc}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
DAEMONS = {
    "agent run --kubeconfig KUBECONFIG --state-dir DIR/state --nri off --runtime unix://DIR/none.sock": (
        "Connection refused"
    ),
    "scheduler --kubeconfig KUBECONFIG --port 0": "Connection refused",
    "up --data-dir DIR/up --port 0 --other-instances ignore": "ready:",
}
"""Command, and what it reports once it has sent requests."""


@pytest.mark.parametrize("command", DAEMONS, ids=lambda command: command.split()[0])
def test_a_signal_leaves_no_session_open(tmp_path, command):
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    kubeconfig.write_text(KUBECONFIG)
    words = command.replace("KUBECONFIG", str(kubeconfig)).replace("DIR", str(tmp_path)).split()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-m", "corelane", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | {"HOME": str(tmp_path)},
        )
    try:
        deadline = time.monotonic() + 120
        while DAEMONS[command] not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Unclosed" not in log.read_text()
    finally:
        process.kill()
        process.wait()
