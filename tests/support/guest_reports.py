"""A pytest plugin for the inside of a guest: sends reports to the host as JSON, bounds the time of a test."""

import json
import signal
from pathlib import Path

import pytest

from support.guest import TEST_SECONDS

LONGEST = 20_000
"""Characters of a test's output that are sent: a serial port is slow."""


class OverTimeError(Exception):
    """A test took too long."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reports(config))


class Reports:
    """Writes to the second serial port."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._port = Path("/dev/ttyS1").open("w", buffering=1)  # noqa: SIM115

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        data["sections"] = [(name, text[-LONGEST:]) for name, text in data["sections"]]
        self._port.write(f"{json.dumps(data)}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        signal.signal(signal.SIGALRM, _end)
        signal.alarm(TEST_SECONDS)
        try:
            return (yield)
        finally:
            signal.alarm(0)


def _end(*_: object) -> None:
    raise OverTimeError(f"a test in the guest took longer than {TEST_SECONDS} s")
