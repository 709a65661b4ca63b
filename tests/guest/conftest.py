"""The tests of this directory run in a guest, all in one boot; the host shows what the guest reports."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import containerd, guest

HERE = Path(__file__).parent
_GUEST = pytest.StashKey[guest.Guest]()


PATIENCE = """
[timeouts]
  "io.containerd.timeout.shim.load" = "60s"
  "io.containerd.timeout.task.state" = "60s"
"""
"""A containerd that starts again ends containers whose shims do not answer in time (5 s, 2 s)."""
LATE_FIXTURES = ("lab", "node")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and run those last for which programs stay up: others see what these leave behind."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("system")
            item.add_marker("vm")
    items.sort(key=lambda item: item.path.is_relative_to(HERE) and _late(item))


def _late(item: pytest.Item) -> int:
    return sum(name in LATE_FIXTURES for name in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[containerd.Containerd]:
    """A containerd with NRI, which waits for its plugins as long as emulation takes."""
    home = tmp_path_factory.mktemp("cd")
    with containerd.running(home, guest.RELEASE, PATIENCE, nri_timeout="60s") as found:
        yield found


def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if guest.INSIDE or not item.path.is_relative_to(HERE):  # pytest calls this for every test of the run
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    try:
        for data in _guest(item).reports(item.nodeid):
            yield item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
    except pytest.skip.Exception as reason:
        path, line, _ = item.location
        yield _report(item, "skipped", (path, line, f"Skipped: {reason.msg}"))
    except guest.GuestEndedError as error:
        yield _report(item, "failed", str(error))


def _report(item: pytest.Item, outcome: str, about: object) -> pytest.TestReport:
    keywords = dict.fromkeys(item.keywords, 1)  # names alone: xdist cannot send marks
    return pytest.TestReport(item.nodeid, item.location, keywords, outcome, about, "call")


def _guest(item: pytest.Item) -> guest.Guest:
    """The guest of this run, booted for the first of its tests."""
    stash, config = item.session.stash, item.config
    if _GUEST not in stash:
        guest.requirements()
        directory = Path(tempfile.mkdtemp(prefix="corelane-guest-"))
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
        tests = [one.nodeid for one in item.session.items if one.path.is_relative_to(HERE)]
        stash[_GUEST] = guest.Guest(directory, tests)
        config.add_cleanup(stash[_GUEST].close)
    return stash[_GUEST]
