"""`corelane limits lint`: the cost of CPU and memory settings in manifests, and their fixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from corelane.cli import _options
from corelane.cli._errors import Command, Fault
from corelane.cli.limits import _sources


@click.command(cls=Command)
@click.argument("files", nargs=-1, metavar="FILE…")
@_options.output("table json sarif")
@_sources.policy
@click.option(
    "--node-cpus", type=click.IntRange(min=1), help="CPUs of the largest node that pods may run on."
)
@click.option(
    "--exclusive-cpus/--no-exclusive-cpus",
    default=None,
    help="Whether the kubelet's CPU manager policy is static, which gives Guaranteed containers with whole "
    "CPUs exclusive ones.  [default: no]",
)
@click.option("--cfs-period", metavar="MS", help="The kubelet's cpuCFSQuotaPeriod.  [default: 100ms]")
@_options.choice(
    "--fail-on",
    "info warning error never",
    "The lowest severity that exits with 1.  [default: warning]",
)
@_options.many("--disable", "RULE", "Disable a rule")
@_options.file("--baseline", "Report of an earlier run (-o json or sarif); only new findings are reported.")
@click.option("--allow-empty", is_flag=True, help="Accept input without any Kubernetes object.")
@click.option("--show-ignored", is_flag=True, help="Print ignored findings, too.")
@click.option("--rules", is_flag=True, help="List the rules.")
@click.option("--explain", metavar="RULE", help="Explain a rule: the reason and the fix.")
def lint(
    files: tuple[str, ...],
    output: str,
    policy: Path | None,
    disable: tuple[str, ...],
    explain: str | None,
    baseline: Path | None,
    *,
    allow_empty: bool,
    show_ignored: bool,
    rules: bool,
    **flags: Any,
) -> None:
    """Find CPU limits that throttle, missing requests and lost exclusive CPUs in manifests, with the fix.

    FILE is YAML or JSON with Kubernetes objects, a directory of such files, or - for standard input. Exits
    with 0 if clean, 1 with a finding at or above --fail-on, 2 if some input cannot be used. A comment
    `# corelane: ignore RULE reason` on a line, or above it, ignores findings there.

    \b
    corelane limits lint deploy.yaml
    helm template ./chart | corelane limits lint -
    corelane limits lint manifests/ -o sarif > lint.sarif
    corelane limits lint manifests/ --baseline baseline.json
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import lint as app

    if rules:
        app.rules(click.echo)
        return
    if explain:
        app.explain(explain, click.echo)
        return
    if not files:
        raise Fault("name the files to lint, directories, or - for standard input")
    settings = app.policy(policy, _sources.named(flags), disable)
    code = app.main(
        files,
        settings,
        output,
        ignored=show_ignored,
        say=click.echo,
        complain=lambda line: click.echo(line, err=True),
        baseline=baseline,
        allow_empty=allow_empty,
    )
    raise SystemExit(code)
