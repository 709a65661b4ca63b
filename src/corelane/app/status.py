"""`corelane status`: nodes, pods and published ledgers, read once, as tables, JSON or a drawing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Literal

from corelane.app import local_instance
from corelane.fleet import cluster as fleet
from corelane.fleet.cluster import ClusterObjects
from corelane.fleet.status import Ledgers, ledgers
from corelane.fleet.status import status as status_of
from corelane.kube.apierrors import NoCluster, Unreachable
from corelane.kube.client import KubeClient
from corelane.node.explain.cluster_status import ClusterStatus
from corelane.view import status as view
from corelane.view import tables
from corelane.view.svg import svg


class NoSuchNode(LookupError):  # noqa: N818 - a state
    """The given node is not in the cluster, or a required --node is missing."""


class NoAnswer(Exception):  # noqa: N818 - a state
    """No cluster is configured, or it is unreachable; the message has its address and the remedy."""


def main(kubeconfig: Path | None, node: str | None, form: Literal["table", "json", "svg"]) -> None:
    """Print the state of a cluster, or of one node of it.

    Raises NoAnswer if it is unreachable, APIError if it rejects a request, NoSuchNode.
    """
    status = asyncio.run(_read(kubeconfig or local_instance.kubeconfig()))
    if node is not None:
        status = only(status, node)
    if form == "table":
        view.show(status, tables.console())
    elif form == "json":
        json.dump(view.plain(status), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        if len(status.nodes) != 1:
            names = ", ".join(each.name for each in status.nodes)
            raise NoSuchNode(f"-o svg draws one node: name it with --node ({names})")
        (only_node,) = status.nodes
        if only_node.state is None:
            raise NoSuchNode(f"node {only_node.name} publishes no NodeResourceTopology: nothing to draw")
        sys.stdout.write(svg(only_node.state.machine, view.painted(only_node.state)))


def only(status: ClusterStatus, name: str) -> ClusterStatus:
    """Return the part of a status for one node. Raises NoSuchNode."""
    nodes = tuple(node for node in status.nodes if node.name == name)
    if not nodes:
        names = ", ".join(node.name for node in status.nodes) or "none"
        raise NoSuchNode(f"--node {name}: node not found; nodes are {names}")
    return ClusterStatus(nodes, tuple(line for line in status.containers if line.node == name), ())


async def _read(kubeconfig: Path | None) -> ClusterStatus:
    try:
        client = KubeClient.connect(kubeconfig)
        try:
            return await gather(client)
        finally:
            await client.close()
    except (NoCluster, Unreachable) as error:
        raise NoAnswer(
            f"{error}; is `corelane up` running? Start it, or name a cluster with --kubeconfig"
        ) from error


async def gather(client: KubeClient) -> ClusterStatus:
    """Read nodes, topologies and pods, and derive the owners of CPUs."""
    cluster = await fleet.read(client, others=())
    return status_of(cluster, ledgers_of(cluster))


def ledgers_of(cluster: ClusterObjects) -> Ledgers:
    """Return the ledgers of a cluster's nodes, and report the damaged ones on stderr."""
    published = ledgers(cluster)
    for name, fault in published.faults.items():
        sys.stderr.write(f"noderesourcetopology {name}: {fault}\n")
    return published
