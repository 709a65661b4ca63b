"""`corelane limits`: CPU throttling simulated, measured and linted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from corelane.cli._errors import Fault, Group
from corelane.cli._options import (
    DIRECTORY,
    FILE,
    Seconds,
    choice,
    file,
    gathered,
    many,
    output,
    text,
    together,
)

if TYPE_CHECKING:
    from corelane.app.limits.prometheus import PrometheusServer
    from corelane.app.limits.sites import CgroupSource, Selection


@click.group(cls=Group)
def limits() -> None:
    """Measure, predict and remove CPU throttling."""


@limits.command()
@click.argument("scenario", required=False)
@click.option(
    "--variant",
    "changes",
    metavar="CHANGE[,CHANGE…]",
    multiple=True,
    help="Add a case with limit=500m, no-limit, burst=50ms, period=20ms, threads=2, exclusive=2, kernel=5.4 "
    "or cpus=4; may be repeated.",
)
@click.option("--seconds", type=Seconds(0.1, 3600), help="Simulated time.  [default: the scenario's]")
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Runs; the table shows medians.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The first run's seed.")
@output("table json svg html")
def simulate(
    scenario: str | None, changes: tuple[str, ...], seconds: float | None, seeds: int, seed: int, output: str
) -> None:
    """Simulate CPU limits: latency, throughput and the counters of cpu.stat.

    SCENARIO is built in (nginx, neighbours, pytorch) or a YAML file; without it the built-in ones are
    listed. SVG shows the slices, HTML is one self-contained file with tables, delays and slices; both go to
    standard output: corelane limits simulate nginx -o html > nginx.html
    """
    from corelane.app.limits import simulate as app

    if scenario is None:
        for name, title in app.names():
            click.echo(f"{name:<12} {title}")
        return
    text = app.render(scenario, output, changes=changes, seconds=seconds, seeds=seeds, seed=seed)
    click.echo(text, nl=False)


@limits.command()
@click.option("--only", default="", help="Only experiments with this text in their name, such as 'spin 2'.")
@click.option("--runs", type=click.IntRange(1, 50), default=1, show_default=True, help="Runs of each.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    help="Attempts for a run that other load disturbs.",
)
@output("table json")
def calibrate(only: str, runs: int, attempts: int, output: str) -> None:
    """Measure throttling in new cgroups, and compare it with the model.

    Threads spin, sleep and work in bursts, alone, beside others of another weight, and under nested limits.
    Takes 4 to 5 minutes for each of --runs, and up to --attempts times as long on a busy machine: runs
    disturbed by other load or the hypervisor are discarded and repeated. Usually requires root. Exits with 1
    if the model's error exceeds a tolerance, with 3 if no run counts.
    """
    from corelane.app.limits import calibrate as app

    def progress(text: str) -> None:
        click.echo(text, err=True)

    raise SystemExit(app.calibrate(only, runs, attempts, output, say=click.echo, progress=progress))


_DIRECTORY: Final = click.Path(exists=True, file_okay=False, path_type=Path)


_WINDOW: Final = "5m"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is measured: cgroups of a node, or containers of a cluster with `prometheus`."""

    root: Path
    data_dir: Path | None
    cgroups: tuple[Path, ...]
    prometheus: str | None
    window: str | None
    bearer_token_file: Path | None

    def groups(self, pods: Path | None = None) -> CgroupSource:
        """Return where to find this node's cgroups; `pods` is a file with names. Raises Fault."""
        if self.window is not None or self.bearer_token_file:
            given = "--bearer-token-file" if self.window is None else "--window"
            raise Fault(f"{given} is for --prometheus, which is not given")
        from corelane.app.limits.sites import CgroupSource

        return CgroupSource(self.root, pods, self.data_dir, self.cgroups)

    def server(self) -> tuple[PrometheusServer, str]:
        """Return the server and the range of samples. Raises Fault, OSError, PrometheusError."""
        from corelane.app.limits import prometheus

        token = prometheus.bearer(self.bearer_token_file)
        return prometheus.PrometheusServer(self.prometheus or "", token), window(self.window or _WINDOW)


def _selection(namespace: str, pod: str) -> Selection:
    from corelane.app.limits.sites import Selection

    return Selection(namespace, pod)


selection_options = gathered(
    "selected",
    _selection,
    click.option("-n", "--namespace", default="", help="Only this namespace."),
    click.option("--pod", metavar="GLOB", default="", help="Only pods with matching names, such as web-*."),
)
source_options = gathered(
    "source",
    SourceOptions,
    click.option(
        "--root",
        type=_DIRECTORY,
        default="/",
        show_default=True,
        help="The node's root directory, with sys/fs/cgroup, proc and var/log/containers.",
    ),
    click.option(
        "--data-dir",
        type=DIRECTORY,
        help="Where `corelane up` keeps its state.  [default: /var/lib/corelane, or the user's own]",
    ),
    click.option(
        "--cgroup",
        "cgroups",
        type=_DIRECTORY,
        multiple=True,
        help="Measure only this cgroup, by its directory; may be repeated.",
    ),
    text("--prometheus", "URL", "Read a cluster's measurements from Prometheus instead."),
    click.option(
        "--window", metavar=_WINDOW, show_default=_WINDOW, help="Range of samples, with --prometheus."
    ),
    file("--bearer-token-file", "File with the bearer token for Prometheus."),
)
policy_options = together(
    file("--policy", "YAML file with the policy; options override the file."),
    choice(
        "--cpu-limit",
        "never allowed equal-to-request",
        "Whether services may have CPU limits.  [default: never]",
    ),
    choice("--cpu-request", "required optional", "CPU requests.  [default: required]"),
    choice(
        "--memory-limit",
        "equal-to-request required optional",
        "Memory limits.  [default: equal-to-request]",
    ),
)
_NAMES: Final = {
    "cpu_limit": "cpuLimit",
    "cpu_request": "cpuRequest",
    "memory_limit": "memoryLimit",
    "node_cpus": "nodeCPUs",
    "exclusive_cpus": "exclusiveCPUs",
    "cfs_period": "cfsPeriod",
    "fail_on": "failOn",
}


def named(flags: dict[str, Any]) -> dict[str, Any]:
    """The options by their names in a policy file."""
    return {_NAMES[key]: value for key, value in flags.items()}


def window(duration: str) -> str:
    """A duration as Prometheus writes it. Raises Fault."""
    number, unit = duration[:-1], duration[-1:]
    if unit not in "smhd" or not number.isdecimal() or int(number[:9]) == 0:
        raise Fault(f"--window {duration!r}: is not a duration such as 90s, 5m or 1h")
    return duration


@limits.command()
@click.option("--once", is_flag=True, help="One round: two readings with an interval between.")
@click.option(
    "--interval",
    type=Seconds(min=0.1, max=3600),
    help="Seconds between readings.  [default: 2; with --prometheus 15]",
)
@click.option(
    "--count", type=click.IntRange(min=1), help="Stop after this number of rounds.  [default: on Ctrl-C]"
)
@output("table json html")
@choice("--sort", "cost throttled lost used name", "The order of rows.", "cost")
@selection_options
@file("--pods", "Names of the node's pods: output of `kubectl get pods -A -o json`.")
@source_options
def watch(
    interval: float | None,
    count: int | None,
    output: str,
    sort: str,
    selected: Selection,
    pods: Path | None,
    source: SourceOptions,
    *,
    once: bool,
) -> None:
    """Show the cost of throttling for running containers, and whether other processes delay them, too.

    Reads this node's cgroups: the kubelet's pods and those of `corelane up`; containers of Docker, Podman and
    containerd (-n docker); systemd units with a CPU limit (-n systemd). Cost is the time lost per second of
    work and how long a stop lasts, not how many periods count as throttled. Exits with 3 if nothing was
    measured.

    \b
    corelane limits watch
    corelane limits watch --once -o json --sort lost
    corelane limits watch --interval 0.5 --count 60 -o html > throttling.html
    corelane limits watch --prometheus http://prometheus:9090 --window 15m --once
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import watch as app

    if output == "html" and not once and count is None:
        raise Fault("-o html is one file: give --once, or --count for several rounds")
    if source.prometheus and source.cgroups:
        raise Fault("--prometheus and --cgroup are different sources: give one of them")
    rounds = 1 if once else count or 0
    seconds = interval or (15.0 if source.prometheus else 2.0)
    options = app.WatchOptions(seconds, rounds, output, sort, selected)
    watched: app.Watched
    if source.prometheus:
        watched = app.PrometheusWatch(*source.server())
    else:
        watched = app.NodeWatch(source.groups(pods))
    live = sys.stdout.isatty() and rounds != 1
    raise SystemExit(app.main(watched, options, click.echo, live=live))


@limits.command()
@click.argument("record", required=False, type=FILE, metavar="[FILE]")
@output("table json html")
@click.option(
    "--all", "everything", is_flag=True, help="Print the patches of all options, not only of the best."
)
@selection_options
@click.option("--container", metavar="NAME", default="", help="Only this container.")
@file(
    "--pods",
    "Pods, nodes and autoscalers: output of kubectl get pods,nodes,hpa,replicasets -A -o json.",
)
@file(
    "--kubeconfig",
    "Read them from this cluster instead.  [default: corelane up's own, on its node]",
)
@click.option(
    "--seconds",
    type=Seconds(min=0.5, max=3600),
    default=10.0,
    show_default=True,
    help="How long to measure on this node.",
)
@click.option(
    "--latency",
    metavar="FILE|QUERY",
    default="",
    help="A file with a line for each request (seconds when sent, milliseconds) or with p99: MILLISECONDS; "
    "or a Prometheus query for a histogram's buckets.",
)
@source_options
@policy_options
@click.option("--node-cpus", type=click.IntRange(min=1), help="CPUs of nodes that are not in --pods.")
def advise(
    record: Path | None,
    output: str,
    selected: Selection,
    container: str,
    pods: Path | None,
    kubeconfig: Path | None,
    seconds: float,
    latency: str,
    source: SourceOptions,
    policy: Path | None,
    *,
    everything: bool,
    **flags: Any,
) -> None:
    """Advise on throttled containers: drop or raise the limit, burst, fewer threads, exclusive CPUs.

    Measures what `limits watch` finds on this node, or reads FILE, written by `limits watch -o json`, or
    Prometheus. Every option has the effect that the fitted model forecasts, the risk to other pods, and a
    patch. Exits with 0 if there is an answer, 2 for bad input, 3 if no measurement can carry one.

    \b
    corelane limits advise --pods objects.json
    corelane limits watch --interval 0.1 --count 600 -o json > web.json
    corelane limits advise web.json
    corelane limits advise --pods objects.json -o html > advice.html
    corelane limits advise --prometheus http://prometheus:9090 --window 1h
    """  # noqa: D301 - click wants the character itself
    from corelane.app.limits import advise as app
    from corelane.app.limits import lint

    if sum(map(bool, (record, source.prometheus, source.cgroups))) > 1:
        raise Fault("FILE, --prometheus and --cgroup are different sources: give one of them")
    if pods and kubeconfig:
        raise Fault("--pods and --kubeconfig both list the pods: give one of them")
    settings = lint.policy(policy, named(flags), (), app.STATIC)
    options = app.AdviseOptions(output, selected, container, pods, kubeconfig, latency, settings, everything)
    measurements: app.MeasurementSource
    if record:
        measurements = app.RecordSource(record)
    elif source.prometheus:
        measurements = app.PrometheusSource(*source.server())
    else:
        measurements = app.NodeSource(source.groups(), seconds)
    raise SystemExit(app.main(measurements, options, click.echo))


@limits.command()
@click.argument("files", nargs=-1, metavar="FILE…")
@output("table json sarif")
@policy_options
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
@choice(
    "--fail-on",
    "info warning error never",
    "The lowest severity that exits with 1.  [default: warning]",
)
@many("--disable", "RULE", "Disable a rule")
@file("--baseline", "Report of an earlier run (-o json or sarif); only new findings are reported.")
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
    settings = app.policy(policy, named(flags), disable)
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
