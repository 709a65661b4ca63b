"""`corelane scheduler`: the scheduler of a cluster, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Literal

from corelane.app import daemon_log
from corelane.app.scheduler.options import (
    SchedulerOptions,
    extender_address,
    extender_tls,
    extender_token,
    identity,
    lease_settings,
    with_file,
)
from corelane.app.settings_file import SettingsError
from corelane.app.supervise import until_signal
from corelane.kube.client import KubeClient
from corelane.kube.leader_election import LeaderElector, LeaseSettings
from corelane.kube.meta import Object
from corelane.scheduler.daemon import http, scheduler
from corelane.scheduler.daemon.daemon import SchedulerDaemon
from corelane.scheduler.daemon.extender_server import BindingOutcomes, ExtenderServer
from corelane.scheduler.daemon.http import DaemonServer
from corelane.scheduler.daemon.log import LoggingReporter
from corelane.scheduler.daemon.metrics import DecisionReporters
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.decisions import DecisionReporter
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.framework.configuration import Configuration
from corelane.scheduler.plugins import default
from corelane.scheduler.profiles import ConfigurationFile
from corelane.scheduler.queue.waiting import Backoff


def main(options: SchedulerOptions, *, log_format: Literal["auto", "text", "json"] = "auto") -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start."""
    file, options = with_file(options)
    lease = lease_settings(options)
    if options.extender:
        extender_address(options)
        extender_tls(options)
        extender_token(options)
    daemon_log.configure(as_json=daemon_log.AS_JSON[log_format])
    return asyncio.run(_run(options, file, lease))


async def _run(options: SchedulerOptions, file: ConfigurationFile | None, lease: LeaseSettings | None) -> int:
    name = identity()
    reporter = _Reporter(name, lease.name if lease else "")
    client = KubeClient.connect(options.kubeconfig)
    # The election has a client of its own: thousands of bindings under way must not delay a renewal.
    election = KubeClient.connect(options.kubeconfig)
    elector = LeaderElector(election, lease, name, reporter=reporter) if lease else None
    ring = DecisionRing()
    outcomes = BindingOutcomes()
    decisions = DecisionReporters(reporter, ring, outcomes)
    daemon = SchedulerDaemon(_maker(client, file, name, reporter, decisions), reporter, elector)
    extender = ExtenderServer(lambda: daemon.scheduler, client, outcomes)
    server = daemon.server()
    server.router.add_routes(http.routes(ring))
    scheduler.collect_young()
    with until_signal(signal.SIGHUP) as stop:
        try:
            await _serve(server, options)
            if options.extender:
                await _serve_extender(extender, options)
            await daemon.run(stop)
        finally:
            await extender.stop()
            await server.stop()
            await client.close()
            await election.close()
    return 0


def _maker(
    client: KubeClient,
    file: ConfigurationFile | None,
    name: str,
    reporter: LoggingReporter,
    decisions: DecisionReporter,
) -> Callable[[Callable[[], bool]], Scheduler]:
    def make(may_bind: Callable[[], bool]) -> Scheduler:
        # Anew each time: plugins have a state.
        configuration = file.configuration() if file else Configuration((default.profile(),))
        return Scheduler(
            client,
            profiles=configuration.profiles,
            backoff=Backoff(configuration.initial_backoff, configuration.max_backoff),
            reporter=reporter,
            decisions=decisions,
            identity=name,
            may_bind=may_bind,
        )

    return make


class _Reporter(LoggingReporter):
    """Log and metrics, and what this process does once all is listed."""

    def started(self, name: str) -> None:
        super().started(name)
        scheduler.settle()

    def listed(self, kind: type[Object], objects: int) -> None:
        super().listed(kind, objects)
        scheduler.settle()


async def _serve_extender(extender: ExtenderServer, options: SchedulerOptions) -> None:
    address, port = extender_address(options)
    try:
        await extender.start(address, port, extender_tls(options), extender_token(options))
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise SettingsError(f"--listen {options.listen}: {cause}; give another address or port") from error


async def _serve(server: DaemonServer, options: SchedulerOptions) -> None:
    address, port = options.bind_address, options.port
    try:
        await server.start(address, port)
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        remedy = "give another with --bind-address or --port (0: any free)"
        raise SettingsError(f"address {address}, port {port}: {cause}; {remedy}") from error
