"""`corelane up`: API server, scheduler and agent in one process, on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click

from corelane.cli import _options, _streams
from corelane.cli._errors import Command, Fault
from corelane.interrupts import end_on_interrupt, raise_on_interrupt


@click.command(cls=Command)
@click.option(
    "--data-dir",
    type=_options.DIRECTORY,
    help="Where state is kept.  [default: /var/lib/corelane for root, else ~/.local/state/corelane]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port on 127.0.0.1.  [default: the last one used, else a free one]",
)
@click.option("--node-name", help="Name of this machine's node.  [default: the host name]")
@_options.text("--reserved-cpus", "LIST", "CPUs that are never exclusive, such as 0,16.")
@_options.choice(
    "--policy",
    "none static pools",
    "Node policy: change nothing, the kubelet's static policy, or Koordinator's classes and pools.  "
    "[default: pools]",
)
@_options.choice(
    "--allocator",
    "optimal koordinator",
    "How CPUs are chosen under policy pools (static has the kubelet's own).  [default: optimal]",
)
@click.option(
    "--node-config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings of this machine's node (YAML, see docs/pools.md); flags override the file.",
)
@click.option("--nodes", default=0, type=click.IntRange(0, 5000), help="How many simulated nodes to add.")
@click.option(
    "--machine",
    default="socket:2 numa:4 core:16 smt:2",
    show_default=True,
    metavar="SOURCE",
    help="Hardware of the simulated nodes: a spec, or a sysfs snapshot (directory or tarball).",
)
@_options.choice(
    "--cgroups",
    "auto off",
    "How to confine containers: cgroups where they are writable, or CPU affinity alone.",
    "auto",
)
@_options.choice(
    "--other-instances",
    "block ignore",
    "CPUs on which containers of other instances on this machine run: kept from exclusive use, or not.",
    "block",
)
@_options.reconcile_seconds
@click.option(
    "--restore-backup",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Start with this backup of the API server's objects; the present file is kept under another name.",
)
@click.option(
    "--forget-pods",
    is_flag=True,
    help="End running pods that the API server's data lacks, instead of recreating them from their records.",
)
@_options.choice(
    "--log-format", "auto text json", "Format of the log; auto: JSON if stderr is not a terminal.", "auto"
)
@click.option(
    "--detach", is_flag=True, help="Run in the background: return when ready, with process id and log file."
)
@click.option("--stop-pods", is_flag=True, help="End the pods' processes too when corelane stops.")
def up(
    data_dir: Path | None,
    nodes: int,
    *,
    stop_pods: bool,
    detach: bool,
    log_format: Literal["auto", "text", "json"],
    **options: Any,
) -> None:
    """Run corelane on this machine: pods run as local processes, pinned to their CPUs.

    Starts a Kubernetes API server on 127.0.0.1, the scheduler, and an agent for this machine. Prints the
    kubeconfig to use with kubectl. Ctrl-C stops corelane; the pods' processes keep running, and the next
    start adopts them, unless --stop-pods is given.

    \b
    corelane up --detach
    export KUBECONFIG=/var/lib/corelane/kubeconfig
    kubectl apply -f examples/latency-critical.yaml
    kubectl get pods -o wide
    corelane status
    """  # noqa: D301 - click wants the character itself
    end_on_interrupt()
    from corelane.app import local_instance
    from corelane.embedded.up import command as app
    from corelane.embedded.up.options import UpOptions

    asked = click.get_current_context().get_parameter_source("machine")
    if not nodes and asked is click.core.ParameterSource.COMMANDLINE:
        raise Fault("--machine is for simulated nodes, but there are none; add --nodes N, or remove it")
    directory = data_dir or local_instance.data_dir()
    if detach and not app.in_background():  # else this is the process that such a call started
        raise_on_interrupt()
        raise SystemExit(app.start_in_background(sys.argv[1:], directory, click.echo))
    _streams.treat_stdout_as_log()
    started = UpOptions(data_dir=directory, simulated=nodes, **options)
    raise SystemExit(app.main(started, stop_pods=stop_pods, say=click.echo, log_format=log_format))
