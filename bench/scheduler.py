"""The scheduler, measured: `make bench-scheduler`, or `bench/scheduler.py --only drain --kubeconfig FILE`.

* decisions: the core alone, without an API server; CPU time of one thread.
* pauses: the core alone; the longest single step of each kind on 5,000 nodes with 50,000 pods; CPU time.
* start: from the process's start to the first binding on 5,000 nodes with 50,000 pods; pauses of its loop.
* drain: pending pods bound end to end, with the embedded server in another process, a real kube-apiserver and
  etcd where KUBEBUILDER_ASSETS names their directory, and the cluster of --kubeconfig; KUBE_SCHEDULER names a
  kube-scheduler to run beside corelane on the same cluster, one after the other.
* rejections: pods that nodes refuse after binding, by scheduler.

Other programs that run meanwhile spoil the figures; `--quick` takes small sizes to see that everything runs.
"""

# ruff: noqa: T201
import argparse
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import report
import scheduler_cluster as clusters
import scheduler_decisions as decisions
import scheduler_drain as drains
import scheduler_pauses as pauses
import scheduler_rejections as rejections
import scheduler_start as start
from report import Row
from scheduler_cluster import Cluster

PARTS: Final = ("decisions", "pauses", "rejections", "start", "drain")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of the parts that were asked for."""
    quick = options.quick
    if "decisions" in options.only:
        yield from decisions.rows(options.seed, (100, 500) if quick else decisions.SIZES)
    if "pauses" in options.only:
        yield from pauses.rows(options.seed, 100 if quick else pauses.NODES)
    if "rejections" in options.only:
        yield from rejections.rows(options.seed, _program("KUBE_SCHEDULER"), _assets())
    if "start" in options.only:
        yield from start.rows(100 if quick else start.NODES)
    if "drain" in options.only:
        sizes, pods = ((50,), 200) if quick else (tuple(sorted(options.nodes)), drains.PODS)
        for server in _servers(options.kubeconfig):
            with server as cluster:
                # kube-scheduler waits for kinds that the embedded server does not serve.
                binary = None if cluster.name == "embedded" else _program("KUBE_SCHEDULER")
                yield from drains.rows(cluster, binary, sizes, pods)


def _servers(kubeconfig: Path | None) -> Iterator[AbstractContextManager[Cluster]]:
    if kubeconfig:
        yield clusters.given(kubeconfig)
        return
    yield clusters.embedded()
    if assets := _assets():
        yield clusters.real(assets)
    else:
        print("no kube-apiserver: set KUBEBUILDER_ASSETS to the directory of kube-apiserver and etcd")


def _assets() -> Path | None:
    return _program("KUBEBUILDER_ASSETS")


def _program(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=12, help="seed of pods and nodes (default 12)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run (default all)")
    parser.add_argument(
        "--kubeconfig", type=Path, help="drain on this cluster, whose nodes have no controller"
    )
    parser.add_argument(
        "--nodes", nargs="+", type=int, default=drains.SIZES, help="sizes of drain (default 1000 5000)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, no figures worth quoting")
    options = parser.parse_args()
    made = list(rows(options))
    report.show(made, f"seed {options.seed}; nodes {decisions.load.MACHINE}")
    report.keep("scheduler-quick" if options.quick else "scheduler", made)


if __name__ == "__main__":
    main()
