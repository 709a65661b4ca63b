"""`corelane agent`: the agent beside a kubelet, and its status."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from corelane.cli import _options
from corelane.cli._errors import Group


@click.group(cls=Group)
def agent() -> None:
    """Run the node agent beside a kubelet, and show its status.

    The kubelet starts and ends pods; the agent allocates their CPUs, applies them through the container
    runtime, and verifies them in the kernel. See docs/agent.md.
    """


_STATE_DIR = click.option(
    "--state-dir",
    type=_options.DIRECTORY,
    default="/var/lib/corelane",
    show_default=True,
    help="Where the agent keeps its ledger and settings.",
)


@agent.command()
@click.option(
    "--node-config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings of this node (YAML, see docs/pools.md and docs/agent.md); flags override the file.",
)
@click.option("--node-name", help="Name of this node.  [default: $NODE_NAME, else the host name]")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cluster to join.  [default: $KUBECONFIG, ~/.kube/config, else the pod's service account]",
)
@_STATE_DIR
@click.option("--read-only", is_flag=True, help="Report CPUs, but allocate none and write no cpuset.")
@click.option(
    "--ignore",
    is_flag=True,
    help="First stage of a takeover: neither report the kubelet's CPUs nor write a cpuset.",
)
@_options.text(
    "--runtime",
    "ENDPOINT",
    "CRI socket of the container runtime.  [default: unix:///run/containerd/containerd.sock]",
)
@_options.text("--nri", "SOCKET", "NRI socket, or off.  [default: /var/run/nri/nri.sock]")
@_options.reconcile_seconds
@_options.choice(
    "--log-format", "auto text json", "Format of the log; auto: JSON if stderr is not a terminal.", "auto"
)
def run(log_format: Literal["auto", "text", "json"], **options: Any) -> None:
    """Run the agent until SIGINT or SIGTERM; containers keep their CPUs when it ends.

    \b
    corelane agent run --node-config /etc/corelane/node.yaml
    corelane agent status
    """  # noqa: D301 - click wants the character itself
    from corelane.app.agent import command
    from corelane.app.agent.command import AgentOptions

    raise SystemExit(command.main(AgentOptions(**options), log_format=log_format))


@agent.command()
@_STATE_DIR
@_options.output("table json")
def status(state_dir: Path, output: Literal["table", "json"]) -> None:
    """Show mode, sources, writes and containers of this node's agent.

    Where none runs: its saved state, with exit status 1.
    """
    from corelane.app.agent import status as app

    raise SystemExit(app.main(state_dir, output))
