"""What an agent keeps on disk between two runs: its ledger, and the settings under which it ran."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corelane.agent import checkpoint, settings
from corelane.agent.messages import Tell
from corelane.agent.reporter import Reporter
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState


class StateFiles:
    """The two files of one agent: the ledger as it was read, and the settings that hold now."""

    def __init__(self, directory: Path, profile: NodeConfig, machine: Machine, reporter: Reporter) -> None:
        """Read both; what they say is fitted to the machine. Raises OSError, NodeConfigError."""
        self._reporter = reporter
        self._path = directory / checkpoint.FILE_NAME
        self._settings_path = directory / settings.FILE_NAME
        self._record, self.settings_fault = settings.load(self._settings_path)
        self.settings = settings.Settings(profile, machine, self._record)
        self._loaded = checkpoint.load(self._path, machine, self.settings.config)
        self.ledger = self._loaded.ledger

    def news(self) -> Iterator[Tell]:
        """Report what was damaged, or is not as it was in the last run; the node's events about that."""
        damaged = self._loaded.damaged
        if damaged:
            self._reporter.ledger_lost(str(self._path), str(damaged.backup), damaged.why)
            text = f"{damaged.why}. It is kept as {damaged.backup}; the ledger was made anew from what runs"
            yield Tell("", "LedgerDamaged", text, True)
        for problem in self._loaded.problems:
            self._reporter.ledger_changed(problem)
            yield Tell("", "LedgerChanged", problem, True)
        before, now = self._record.policy, self.settings.config.policy
        if before not in ("", now):
            text = f"The CPU policy was {before} and is {now} now; who runs keeps the CPUs that it has"
            yield Tell("", "PolicyChanged", text, False)

    async def save_ledger(self, ledger: NodeState) -> str:
        """Replace the ledger's file; why that failed, if it did."""
        begun = time.monotonic()
        try:
            await _to_the_end(checkpoint.save, self._path, ledger)
        except OSError as error:
            self._reporter.checkpoint_failed(str(self._path), str(error))
            return f"{self._path}: {error.strerror or error}"
        self._reporter.checkpointed(ledger.generation, time.monotonic() - begun)
        return ""

    async def save_settings(self) -> None:
        """Write down what holds; without it the next start asks the API server again."""
        if self.settings.saved:
            return
        self.settings.saved = True
        try:
            await _to_the_end(settings.save, self._settings_path, self.settings.record)
        except OSError as error:
            self._reporter.checkpoint_failed(str(self._settings_path), str(error))


async def _to_the_end(work: Callable[..., None], *args: Any) -> None:
    """Run in a thread; a cancellation waits for its end, so that nothing is written after we are gone."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
