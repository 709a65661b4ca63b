"""One source of an agent: read again and again, each failure with a longer pause, and its state for status.

The failure of one source, whatever it is, stops no other. Pauses follow the monotonic clock.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from corelane.agent.reporting import AgentReporter

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


@dataclass(slots=True)
class SourceState:
    """What is known of a source; `since` is in Unix seconds. `retries` counts the failures in a row."""

    name: str
    state: str = "starting"
    since: float = 0.0
    error: str = ""
    retries: int = 0
    failures: int = 0
    detail: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the state with stable keys, for status."""
        return {
            "name": self.name,
            "state": self.state,
            "since": self.since,
            "error": self.error,
            "retries": self.retries,
            "failures": self.failures,
            "detail": self.detail,
        }


class Source:
    """Calls `read` every `seconds`; `wake` makes the next call come at once.

    With `seconds` 0 a read that returns is repeated at once: for streams, which report `note_ok` themselves.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[None]],
        *,
        seconds: float,
        reporter: AgentReporter,
        clock: Callable[[], float],
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self.state = SourceState(name, since=clock())
        self._read = read
        self._seconds = seconds
        self._reporter = reporter
        self._clock = clock
        self._longest = longest_pause
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Read again now, unless a failure's pause is under way."""
        if self.state.state != "failing":
            self._wake.set()

    def note_ok(self, detail: str | None = None) -> None:
        """Record that the source works."""
        state = self.state
        if detail is not None:
            state.detail = detail
        if state.state == "failing":
            self._reporter.source_recovered(state.name, state.retries)
        if state.state != "ok":
            state.state, state.since, state.error, state.retries = "ok", self._clock(), "", 0

    def note_failure(self, error: BaseException) -> None:
        """Record that the source failed; the first failure in a row is reported."""
        state, text = self.state, str(error) or type(error).__name__
        if state.state != "failing":
            state.state, state.since = "failing", self._clock()
        if text != state.error:
            self._reporter.source_failed(state.name, error)
        state.error = text
        state.retries += 1
        state.failures += 1

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this source's alone
                self.note_failure(error)
                await asyncio.sleep(self._pause())
                continue
            if self._seconds:
                self.note_ok()
                await self._sleep(self._seconds)

    def _pause(self) -> float:
        longest = min(self._longest, FIRST_PAUSE * 2.0 ** min(self.state.retries - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def named_count(count: int, noun: str) -> str:
    """Return "1 pod", "2 pods"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def local_source(
    name: str,
    read: Callable[[], Awaitable[None]],
    *,
    seconds: float,
    reporter: AgentReporter,
    clock: Callable[[], float],
) -> Source:
    """Return a source on this node: it is cheap to ask, and so is asked again within its period."""
    longest = min(seconds or LONGEST_PAUSE, LONGEST_PAUSE)
    return Source(name, read, seconds=seconds, reporter=reporter, clock=clock, longest_pause=longest)
