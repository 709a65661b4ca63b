"""`corelane up`: the cluster of this machine, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from corelane.app import daemon_log
from corelane.app.supervise import completes, until_signal
from corelane.embedded.up import (
    detach,
    down,
    heap,
    log_file,
    server_http,  # noqa: F401 - before the parts that import aiohttp
)
from corelane.embedded.up.cluster import Cluster
from corelane.embedded.up.options import UpOptions
from corelane.scheduler.daemon import scheduler

__all__ = ["UpOptions"]

_MOST_TITLES: Final = 10


def main(
    options: UpOptions, *, stop_pods: bool, say: Callable[[str], None], log_format: daemon_log.Format = "auto"
) -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start, or PartEnded.

    `say` raises nothing but BrokenPipeError: a log on a full disk must break off no start, no stop.
    """
    heap.share_one_arena()
    heap.bound_tls_buffers()
    path = detach.log_path()
    handler = log_file.BoundedLog(path) if path else None
    daemon_log.configure(as_json=daemon_log.AS_JSON[log_format], handler=handler)
    return asyncio.run(_run(options, stop_pods=stop_pods, say=say))


async def _run(options: UpOptions, *, stop_pods: bool, say: Callable[[str], None]) -> int:
    def note(text: str) -> None:
        with suppress(BrokenPipeError):  # the reader of the log may have ended first
            say(text)

    with until_signal() as stop:
        scheduler.collect_young()
        cluster = Cluster(options, say=say)
        if not await completes(cluster.start(), unless=stop):
            note("stopped before it was ready")
            return 130 if stop.number == signal.SIGINT else 0
        lost, interrupted, keeping = "", False, asyncio.ensure_future(heap.keep_small())
        try:
            welcome = _welcome(cluster, stop_pods=stop_pods)
            say(welcome)
            scheduler.settle()
            heap.return_freed()
            detach.report_ready(welcome)
            lost = await _until_stopped(cluster, stop)
            if lost:
                note(lost)
        finally:
            keeping.cancel()
            note("stopping; the pods' processes end too" if stop_pods else "stopping")
            interrupted = await _stop(cluster, stop_pods=stop_pods)
            note(_farewell(cluster, interrupted=interrupted))
        return 130 if interrupted else 1 if lost else 0


async def _until_stopped(cluster: Cluster, stop: asyncio.Event) -> str:
    """Wait for the signal to stop, or until the data directory is lost; return a sentence about that."""
    loss = asyncio.ensure_future(cluster.directory.lost())
    signalled = asyncio.ensure_future(stop.wait())
    try:
        await cluster.parts.first_of(asyncio.wait({loss, signalled}, return_when=asyncio.FIRST_COMPLETED))
        return loss.result() if loss.done() else ""
    finally:
        loss.cancel()
        signalled.cancel()


async def _stop(cluster: Cluster, *, stop_pods: bool) -> bool:
    """Stop all parts; return whether a second Ctrl-C ended the wait for the pods."""
    again, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, again.set)
    try:
        if stop_pods and not await completes(cluster.stop(stop_pods=True), unless=again):
            await cluster.stop(stop_pods=False)
            return True
        if not stop_pods:
            await cluster.stop(stop_pods=False)
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _farewell(cluster: Cluster, *, interrupted: bool) -> str:
    """Return what still runs, and how to end it."""
    titles = cluster.still_running()
    ending = "interrupted before all pods had ended" if interrupted else "stopped"
    if not titles:
        return f"{ending}; no process of a pod is left"
    shown = ", ".join(titles[:_MOST_TITLES])
    more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
    command = down.command_for(cluster.directory.root)
    return f"{ending}; {down.containers(len(titles))} still running: {shown}{more}; to end: {command}"


def _welcome(cluster: Cluster, *, stop_pods: bool) -> str:
    runtime = cluster.runtime(cluster.node_name)
    machine = cluster.agents[cluster.node_name].ledger.machine
    config = cluster.agents[cluster.node_name].ledger.config
    policy = f"policy {config.policy}"
    if config.policy == "pools":
        policy += f", allocator {config.pools.allocator}"
    cpus = "1 CPU" if len(machine.usable) == 1 else f"{len(machine.usable)} CPUs"
    lines = [
        f"corelane is up at {cluster.url}",
        f"  node {cluster.node_name}: {cpus} ({machine.usable}), {policy}",
        f"  pods run as local processes, confined to their CPUs by {runtime.enforcement}",
    ]
    if runtime.notice:
        lines.append(f"  note: {runtime.notice}")
    lines += [f"  note: {line}" for line in cluster.notes]
    if cluster.options.simulated:
        count = cluster.options.simulated
        lines.append(
            f"  and {count} simulated node{'s' * (count > 1)}, where no process runs "
            "(pods must tolerate the taint corelane.io/simulated)"
        )
    ending = "ends the pods too" if stop_pods else "leaves the pods' processes running"
    stop = f"kill {os.getpid()}" if detach.in_background() else "Ctrl-C"
    lines += [f"  {stop} stops corelane and {ending}"]
    lines += [f"ready: export KUBECONFIG={shlex.quote(str(cluster.directory.kubeconfig))}"]
    return "\n".join(lines)
