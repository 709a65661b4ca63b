"""The exposition format, and the metrics of a scheduler that works."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from corelane.kube.client import KubeClient
from corelane.kube.leader_election import LeaderElector, LeaseSettings
from corelane.kube.pod import Pod
from corelane.scheduler.daemon.daemon import SchedulerDaemon
from corelane.scheduler.daemon.families import Families
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.daemon.pod_status_writer import Leadership
from corelane.scheduler.daemon.scheduler import Scheduler
from support.scheduled_cluster import TOKEN, ScheduledCluster, embedded_server

SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)$')

UPSTREAM = {
    "scheduler_schedule_attempts_total": ("result", "profile"),
    "scheduler_scheduling_attempt_duration_seconds": ("result", "profile"),
    "scheduler_scheduling_algorithm_duration_seconds": (),
    "scheduler_pod_scheduling_sli_duration_seconds": ("attempts",),
    "scheduler_pod_scheduling_attempts": (),
    "scheduler_framework_extension_point_duration_seconds": ("extension_point", "status", "profile"),
    "scheduler_plugin_execution_duration_seconds": ("plugin", "extension_point", "status"),
    "scheduler_preemption_attempts_total": (),
    "scheduler_preemption_victims": (),
    "scheduler_queue_incoming_pods_total": ("queue", "event"),
    "scheduler_permit_wait_duration_seconds": ("result",),
    "scheduler_plugin_evaluation_total": ("plugin", "extension_point", "profile"),
    "scheduler_event_handling_duration_seconds": ("event",),
    "scheduler_pod_scheduled_after_flush_total": (),
    "scheduler_pending_pods": ("queue",),
    "scheduler_unschedulable_pods": ("plugin", "profile"),
    "scheduler_cache_size": ("type",),
    "scheduler_goroutines": ("operation",),
    "leader_election_master_status": ("name",),
}
"""kube-scheduler 1.36, pkg/scheduler/metrics: names and labels."""


def parsed(text: str) -> dict[str, dict[str, float]]:
    """Values by labels' text, by name; every line must be of Prometheus' form."""
    samples: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            found = SAMPLE.match(line)
            assert found, line
            samples.setdefault(found[1], {})[found[2] or ""] = float(found[3])
    return samples


def test_names_and_labels_are_kube_schedulers() -> None:
    found = {}
    registry = CollectorRegistry()
    for family in vars(Families(registry)).values():
        (described,) = family.describe()
        found[described.name + "_total" * (described.type == "counter")] = family
    for name, labels in UPSTREAM.items():
        if name in found and labels:
            found[name].labels(*labels)
            (made,) = found[name].collect()
            assert all(one.labels.keys() - {"le"} == set(labels) for one in made.samples)
    samples = parsed(SchedulerMetrics("lease").text())
    read = {"scheduler_unschedulable_pods", "scheduler_cache_size", "scheduler_plugin_evaluation_total"}
    assert set(UPSTREAM) <= {*found, *samples, *read}
    others = {name for name in found if name not in UPSTREAM}
    assert all(name.startswith("corelane_scheduler_") for name in others), others


def test_buckets_are_kube_schedulers() -> None:
    made = Families(CollectorRegistry())
    assert bounds(made.attempt_duration.labels("a", "b")) == [0.001 * 2**n for n in range(15)]
    assert bounds(made.sli_duration.labels("1"))[-1] == pytest.approx(5242.88)
    made.extension_points.labels("a", "b", "c")
    assert bounds(made.extension_points)[-1] == pytest.approx(0.2048)
    made.event_handling.labels("NodeAdd")
    assert bounds(made.event_handling) == [0.0001 * 2**n for n in range(12)]
    assert bounds(made.permit_wait.labels("Success")) == [0.001 * 2**n for n in range(15)]
    assert bounds(made.preemption_victims) == [1, 2, 4, 8, 16, 32, 64]
    assert bounds(made.pod_attempts) == [1, 2, 4, 8, 16]


def bounds(histogram: Collector) -> list[float]:
    """Upper bounds of the buckets, without the infinite one."""
    (family,) = histogram.collect()
    found = [float(one.labels["le"]) for one in family.samples if one.name.endswith("_bucket")]
    return found[:-1]


async def page(port: int, path: str) -> tuple[int, str]:
    def read() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=180) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(read)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ScheduledCluster, SchedulerDaemon, int]]:
    """A cluster, a daemon that schedules there, and the port of its pages."""
    async with embedded_server() as server:
        client, election = (KubeClient.connect_to(server.url, TOKEN) for _ in range(2))
        metrics = SchedulerMetrics("corelane-scheduler")
        settings = LeaseSettings("corelane-scheduler")
        elector = LeaderElector(election, settings, "replica", reporter=metrics)

        class Schedulers:
            def new(self, lease: Leadership | None) -> Scheduler:
                return Scheduler(client, reporter=metrics, decisions=metrics, lease=lease)

        daemon = SchedulerDaemon(Schedulers(), metrics, elector)
        pages = daemon.server()
        port = await pages.start("127.0.0.1", 0)
        stop = asyncio.Event()
        task = asyncio.create_task(daemon.run(stop))
        try:
            yield ScheduledCluster(client), daemon, port
            stop.set()
            await task
        finally:
            task.cancel()
            await pages.stop()
            await client.close()
            await election.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.05)


async def test_a_daemon_shows_readiness_and_what_it_did() -> None:
    async with running() as (cluster, daemon, port):
        assert (await page(port, "/healthz"))[0] == 200
        await cluster.node("n1", "core:8", 8)
        await cluster.pod("fits", "2")
        await cluster.pod("large", "64")
        await cluster.placed("fits")

        async def parked() -> bool:
            return parsed((await page(port, "/metrics"))[1])["scheduler_unschedulable_pods"] != {}

        await until(parked)
        assert await page(port, "/readyz") == (200, "ok")
        verbose = (await page(port, "/readyz?verbose"))[1].splitlines()
        assert verbose == ["[+]ping ok", "[+]leaderElection ok", "[+]informer-sync ok", "readyz check passed"]
        values = parsed((await page(port, "/metrics"))[1])
        attempts = values["scheduler_schedule_attempts_total"]
        assert attempts['profile="corelane-scheduler",result="scheduled"'] == 1
        assert attempts['profile="corelane-scheduler",result="unschedulable"'] >= 1
        assert values["scheduler_pod_scheduling_sli_duration_seconds_count"] == {'attempts="1"': 1}
        assert values["scheduler_preemption_attempts_total"][""] >= 1
        assert (
            values["scheduler_queue_incoming_pods_total"]['event="UnschedulablePodAdd",queue="active"'] == 2
        )
        assert values["corelane_scheduler_bindings_total"] == {'outcome="bound"': 1}
        assert values["leader_election_master_status"] == {'name="corelane-scheduler"': 1}
        assert values["scheduler_cache_size"]['type="nodes"'] == 1
        assert values["process_open_fds"][""] > 3
        assert (await page(port, "/other"))[0] == 404
        await cluster.client.delete(Pod, "large", namespace="default", grace_seconds=0)

        async def gone() -> bool:
            return parsed((await page(port, "/metrics"))[1]).get("scheduler_unschedulable_pods", {}) == {}

        await until(gone)
        daemon.scheduler._started = False  # as before all is listed
        status, text = await page(port, "/readyz")
        assert status == 500
        assert "[-]informer-sync failed: nodes, topologies and pods are not listed yet" in text
        assert (await page(port, "/livez"))[0] == 200


async def test_preemption_is_counted_by_attempts_victims_and_what_became_of_them() -> None:
    async with running() as (cluster, _, port):
        await cluster.node("n1", "core:8", 8)
        await cluster.pod("low", "3")
        await cluster.pod("lower", "3")
        for name in ("low", "lower"):
            await cluster.placed(name)
        before = parsed((await page(port, "/metrics"))[1])
        assert before["scheduler_preemption_attempts_total"][""] == 0
        await cluster.pod("high", "6", priorityClassName="system-cluster-critical")

        async def evicted() -> bool:
            values = parsed((await page(port, "/metrics"))[1])
            return values.get("corelane_scheduler_evictions_total") == {'outcome="evicted"': 2}

        await until(evicted)
        values = parsed((await page(port, "/metrics"))[1])
        assert values["scheduler_preemption_attempts_total"][""] >= 1
        assert values["scheduler_preemption_victims_sum"][""] == 2
        assert values["scheduler_preemption_victims_count"][""] == 1
