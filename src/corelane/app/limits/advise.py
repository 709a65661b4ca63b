"""What `corelane limits advise` does: measures or reads measurements, names their pods, and prints advice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corelane.app import local_instance
from corelane.app.limits import advise_inputs, prometheus, prometheus_competition, record, sites
from corelane.app.limits.advise_inputs import AdviseError
from corelane.app.limits.prometheus import PrometheusServer
from corelane.app.limits.sites import ALL, CgroupSource, Selection, Site, Snapshot
from corelane.kernel import cfs
from corelane.kernel.cpu_time import attribution
from corelane.kernel.cpu_time.counters import Rates
from corelane.kernel.cpu_time.threads import Crowd
from corelane.limits.advice import judgement
from corelane.limits.advice.judgement import Answer, Replicas
from corelane.limits.advice.subjects import ClusterSnapshot
from corelane.limits.lint.policy import STATIC, Policy
from corelane.limits.measure import Latency, Measurement
from corelane.view import tables
from corelane.view.limits import advice as view
from corelane.view.limits import pages

__all__ = ["STATIC", "AdviseError"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """What to advise on and how to print it; `objects` is a file, `kubeconfig` a cluster's."""

    form: str = "table"
    selected: Selection = ALL
    container: str = ""
    objects: Path | None = None
    kubeconfig: Path | None = None
    latency: str = ""
    policy: Policy = STATIC
    everything: bool = False


def main(source: MeasurementSource, options: AdviseOptions, say: Say) -> int:
    """Measure, advise, print. Return 0 with an answer for a container, 3 where no data can carry one."""
    snapshot, notes = _snapshot(source, options)
    measured, more = source.measure(options.selected)
    notes += more
    snapshot.known.update(source.names)
    names, selected = dict(snapshot.names()), []
    for each in measured:
        # The node itself may only have ids: names are in the list of pods.
        if name := names.get(each.id) or names.get(each.pod.removeprefix("pod ").replace("_", "-")):
            namespace, pod, container = name
            each = replace(each, namespace=namespace, pod=pod, container=container or each.container)
        if options.selected(each.namespace, each.pod or each.container) and (
            options.container in ("", each.container)
        ):
            selected.append(each)
    if not selected:
        notes.append("no measured container matches the selection")
    groups = judgement.workloads(selected, snapshot)
    latency = _latency(source, options, groups)
    advised = view.sort(
        [judgement.advise_workload(group, snapshot, latency, source.weight) for group in groups]
    )
    if options.form == "json":
        say(json.dumps(view.plain(advised, notes), indent=2))
    elif options.form == "html":
        say(pages.advice(view.plain(advised, notes)))
    else:
        view.show(advised, notes, tables.console(), everything=options.everything)
    return 3 if all(each.answer is Answer.REFUSED for each in advised) else 0


def _snapshot(source: MeasurementSource, options: AdviseOptions) -> tuple[ClusterSnapshot, list[str]]:
    """Objects of a file, of the named cluster, or else of the one that is being measured."""
    snapshot, notes = ClusterSnapshot(policy=options.policy, local_milli=source.local_milli), list[str]()
    if options.objects:
        advise_inputs.read_objects(options.objects, snapshot)
    elif options.kubeconfig:
        notes += advise_inputs.fetch_objects(options.kubeconfig, snapshot)
    elif (own := source.cluster) and own.is_file():
        # `corelane up` need not run for its containers to be measured.
        from corelane.kube.apierrors import APIError

        try:
            advise_inputs.fetch_objects(own, snapshot)
        except (APIError, ImportError, ValueError) as error:
            notes.append(f"{own}: {error}: advice without the list of pods")
    return snapshot, notes


def _latency(source: MeasurementSource, options: AdviseOptions, groups: Sequence[Replicas]) -> Latency | None:
    """The latency of one service, so only one may be selected."""
    if not options.latency:
        return None
    if len(groups) > 1:
        names = ", ".join(f"{name}/{container}" for ((_, _, name), container), _ in groups[:3])
        raise AdviseError(
            f"--latency is of one container, but {len(groups)} are selected ({names}, …): "
            "choose one with -n, --pod and --container"
        )
    if Path(options.latency).is_file() or not isinstance(source, PrometheusSource):
        path = Path(options.latency)
        latency = advise_inputs.read_latency(path)
        measured = [each.rates.seconds for _, of in groups for each in of if isinstance(each.rates, Rates)]
        if latency.log and measured:
            advise_inputs.check_time(path, latency.log, max(measured))
        return latency
    return source.latency(options.latency)


# Sources of measurements.


class MeasurementSource:
    """Where measurements come from. The defaults are those of data from elsewhere, not of this node."""

    cluster: Path | None = None
    """The kubeconfig of the cluster that is measured, where it is known."""
    local_milli: int = 0
    """CPUs of the measured node."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str, str]] = {}
        """Namespace, pod and container by id, as far as the source itself knows them."""

    def measure(self, selected: Selection) -> tuple[list[Measurement], list[str]]:
        """Containers of the selected pods, and notes on the data."""
        raise NotImplementedError

    def weight(self, shares: int) -> int:
        """How cpu.shares become a weight on the measured nodes."""
        return cfs.pod_weight(shares)


class NodeSource(MeasurementSource):
    """This node's cgroups, read twice."""

    def __init__(self, source: CgroupSource, seconds: float) -> None:
        super().__init__()
        self._source, self._seconds = source, seconds
        self.cluster = (
            None if source.groups else (source.data_dir or local_instance.of_kubeconfig()) / "kubeconfig"
        )
        self._node = sites.node(source.root)
        self.local_milli = 1000 * self._node.cpus

    def weight(self, shares: int) -> int:
        return cfs.pod_weight(shares) if self._node.cgroup_version == 2 else shares

    def measure(self, selected: Selection) -> tuple[list[Measurement], list[str]]:
        found, root = sites.find(self._source), self._source.root
        chosen = [site for site in found.sites if self._source.groups or selected.takes(site) or site.id]
        before = sites.snapshot(chosen, root)
        crowds = sites.wait(chosen, self._seconds, root)
        after = sites.snapshot(chosen, root)
        notes = [*found.notes, *before.notes, *after.notes]
        if gone := sum(site.directories not in after.readings for site in chosen):
            notes.append(f"{gone} ended during the measurement")
        measured = [each for site in chosen if (each := _measured(site, before, after, crowds))]
        return measured, list(dict.fromkeys(notes))


def _measured(
    site: Site, before: Snapshot, after: Snapshot, crowds: Mapping[tuple[str, ...], Crowd]
) -> Measurement | None:
    """Between two readings; a container that is missing in either is left out."""
    if site.directories not in before.readings or site.directories not in after.readings:
        return None
    with_throttled = attribution.counts_throttled_time(crowds.values())
    measured = sites.measurement(site, before, after, crowds.get(site.directories), with_throttled)
    if measured is None or not (site.container or isinstance(measured.rates, Rates)):
        return None
    return measured


class PrometheusSource(MeasurementSource):
    """A cluster's containers over a window that ends now."""

    def __init__(self, server: PrometheusServer, window: str) -> None:
        super().__init__()
        self._server, self._window = server, window

    def measure(self, selected: Selection) -> tuple[list[Measurement], list[str]]:
        measured, notes = prometheus.measure(self._server, self._window)
        found = prometheus_competition.add(self._server, measured)
        self.names = found.names
        return [each for each in found.measured if selected(each.namespace, each.pod)], [*notes, *found.notes]

    def latency(self, query: str) -> Latency:
        """Percentiles of a histogram's buckets. Raises AdviseError."""
        return advise_inputs.latency_of_buckets(prometheus.vector(self._server, query), query)


class RecordSource(MeasurementSource):
    """A file that `limits watch -o json` wrote. Raises AdviseError and StateFileError for another."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._measured, self._node = record.read(path)
        self.local_milli = 1000 * self._node.cpus

    def weight(self, shares: int) -> int:
        return shares if self._node.cgroup_version == 1 else cfs.pod_weight(shares)

    def measure(self, selected: Selection) -> tuple[list[Measurement], list[str]]:
        return self._measured, []
