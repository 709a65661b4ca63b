"""`corelane up`: the cluster of this machine, until a signal ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from corelane.app.up import logging
from corelane.app.up.cluster import Cluster
from corelane.app.up.options import UpOptions
from corelane.app.up.supervise import completes, until_signal

__all__ = ["UpOptions"]


def main(options: UpOptions, *, stop_pods: bool, say: Callable[[str], None]) -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start, or PartEnded."""
    logging.configure()
    return asyncio.run(_run(options, stop_pods=stop_pods, say=say))


async def _run(options: UpOptions, *, stop_pods: bool, say: Callable[[str], None]) -> int:
    with until_signal() as stop:
        cluster = Cluster(options)
        if not await completes(cluster.start(), unless=stop):
            say("stopped before it was ready")
            return 0
        try:
            say(_welcome(cluster, stop_pods=stop_pods))
            await cluster.parts.first_of(stop.wait())
        finally:
            say(
                "stopping; the pods' processes end too"
                if stop_pods
                else "stopping; the pods' processes keep running"
            )
            await cluster.stop(stop_pods=stop_pods)
    return 0


def _welcome(cluster: Cluster, *, stop_pods: bool) -> str:
    runtime = cluster.runtime(cluster.node_name)
    machine = cluster.agents[cluster.node_name].ledger.machine
    config = cluster.agents[cluster.node_name].ledger.config
    policy = f"policy {config.policy}"
    if config.policy == "pools":
        policy += f", allocator {config.pools.allocator}"
    lines = [
        f"corelane is up at {cluster.url}",
        f"  node {cluster.node_name}: {len(machine.usable)} CPUs ({machine.usable}), {policy}",
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
    lines += [f"  export KUBECONFIG={cluster.directory.kubeconfig}", f"  Ctrl-C stops corelane and {ending}"]
    return "\n".join(lines)
