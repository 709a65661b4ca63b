"""`corelane scheduler`: the scheduler of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from corelane.cli import _options
from corelane.cli._errors import Command

_F = TypeVar("_F", bound=Callable[..., Any])


def _seconds(flag: str, name: str, default: int, help_text: str) -> Callable[[_F], _F]:
    return click.option(flag, name, type=_options.Seconds(0, 3600), help=f"{help_text}  [default: {default}]")


@click.command(cls=Command)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cluster to schedule.  [default: $KUBECONFIG, ~/.kube/config, else the pod's service account]",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Profiles and plugins, in KubeSchedulerConfiguration's form (YAML, see docs/scheduler.md).",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Schedule only while this replica holds the lease. Without it, run one replica only.  "
    "[default: leader-elect]",
)
@click.option(
    "--bind-address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address of /healthz, /readyz and /metrics.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=10251,
    show_default=True,
    help="Port of /healthz, /readyz and /metrics; 0 for any free one.",
)
@click.option(
    "--leader-elect-resource-name",
    "lease_name",
    help="Name of the Lease.  [default: corelane-scheduler]",
)
@click.option(
    "--leader-elect-resource-namespace",
    "lease_namespace",
    help="Namespace of the Lease.  [default: that of the pod, else kube-system]",
)
@_seconds(
    "--leader-elect-lease-duration",
    "lease_duration",
    15,
    "Seconds without a renewal after which another replica takes over.",
)
@_seconds(
    "--leader-elect-renew-deadline",
    "renew_deadline",
    10,
    "Seconds without a renewal after which the leader stops to bind; less than the lease duration.",
)
@_seconds("--leader-elect-retry-period", "retry_period", 2, "Seconds between two attempts.")
@click.option(
    "--extender",
    is_flag=True,
    help="Also answer a kube-scheduler as its HTTP extender (see docs/scheduler-extender.md).",
)
@click.option(
    "--listen",
    default="127.0.0.1:10262",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Address of the extender.",
)
@_options.file("--tls-cert-file", "Certificate of the extender (PEM); without one it serves plain HTTP.")
@_options.file("--tls-private-key-file", "Key of that certificate (PEM).")
@_options.file("--client-ca-file", "Answer only clients with a certificate of these authorities (PEM).")
@_options.file(
    "--extender-token-file",
    "Answer only requests with the token in this file (mode 0600), see docs/scheduler-extender.md.",
)
@_options.choice(
    "--log-format", "auto text json", "Format of the log; auto: JSON if stderr is not a terminal.", "auto"
)
def scheduler(log_format: Literal["auto", "text", "json"], **options: Any) -> None:
    """Run the scheduler until SIGINT or SIGTERM; it then finishes what it binds and releases its lease.

    \b
    corelane scheduler --kubeconfig ~/.kube/config --no-leader-elect
    """  # noqa: D301 - click wants the character itself
    from corelane.app import scheduler as command
    from corelane.app.scheduler import SchedulerOptions

    raise SystemExit(command.main(SchedulerOptions(**options), log_format=log_format))
