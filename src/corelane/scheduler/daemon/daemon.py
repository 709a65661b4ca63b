"""A scheduler as a daemon: one replica of several leads, schedules while it does, and hands over on a signal.

A replica that stands by lists and watches nothing: what it knew could be older than the last binding of the
leader before it. It lists after it acquired the lease, so every pod bound until then keeps its CPUs.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from corelane.kube.leader_election import LeaderElector
from corelane.scheduler.daemon import garbage
from corelane.scheduler.daemon.http import Check, DaemonServer
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.daemon.pod_status_writer import Leadership
from corelane.scheduler.daemon.scheduler import Scheduler

DRAIN_SECONDS: Final = 8.0
"""Time for bindings under way on a graceful end; less than a pod's usual grace period (30 s)."""


class SchedulerFactory(Protocol):
    """Makes schedulers."""

    def new(self, lease: Leadership | None) -> Scheduler:
        """Return a new scheduler that binds and evicts while it has the lease."""


class SchedulerDaemon:
    """Runs a scheduler while this replica leads; without an elector it always does."""

    def __init__(
        self,
        schedulers: SchedulerFactory,
        metrics: SchedulerMetrics,
        elector: LeaderElector | None = None,
        *,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._schedulers = schedulers
        self._metrics = metrics
        self._elector = elector
        self._drain_seconds = drain_seconds
        self.scheduler: Scheduler | None = None

    def server(self) -> DaemonServer:
        """Return the server of health and metrics, to be started by the caller."""
        live: dict[str, Check] = {"leaderElection": self._election_problem}
        ready: dict[str, Check] = {"informer-sync": self._sync_problem}
        return DaemonServer(live=live, ready=ready, metrics=self._metrics.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop` is set; then finish what is under way, and release the lease."""
        while not stop.is_set():
            if self._elector is not None and not await _first(self._elector.acquire(), stop):
                break
            self.scheduler = scheduler = self._schedulers.new(self._elector)
            self._metrics.attach(scheduler)
            running = asyncio.create_task(scheduler.run())
            holding = asyncio.create_task(self._hold())
            stopping = asyncio.create_task(stop.wait())
            ended = {running, holding}
            try:
                await asyncio.wait({*ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not running.done() and not holding.done():
                    draining = asyncio.create_task(scheduler.drain(self._drain_seconds))
                    await asyncio.wait({*ended, draining}, return_when=asyncio.FIRST_COMPLETED)
                    await _cancel(draining)
            finally:
                # First the scheduler: what it has under way ends with its connections.
                await _cancel(running)
                await _cancel(holding)
                await _cancel(stopping)
                self.scheduler = None
                self._metrics.attach(None)
            if not running.cancelled():
                running.result()
            if not stop.is_set():
                garbage.release()  # What the ended scheduler held; the next one lists again.
        if self._elector is not None:
            await self._elector.release()

    async def _hold(self) -> None:
        if self._elector is None:
            await asyncio.Event().wait()
        else:
            await self._elector.hold()

    def _election_problem(self) -> str:
        late = self._elector is not None and self._elector.renewals_late
        return "the lease was not renewed in time and scheduling goes on" if late and self.scheduler else ""

    def _sync_problem(self) -> str:
        waiting = self.scheduler is not None and not self.scheduler.synced
        return "nodes, topologies and pods are not listed yet" if waiting else ""


async def _first(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Return whether the work ended before `stop` was set; cancel it otherwise. Raises its exceptions."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _cancel(stopping)
    if not task.done():
        await _cancel(task)
        return False
    task.result()
    return True


async def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
