"""The exposition format, and the metrics of a scheduler that works."""

import asyncio
import re
import urllib.request
from collections.abc import Awaitable, Callable

import pytest

from corelane.apiserver.http.auth import User
from corelane.apiserver.http.server import APIServer
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.scheduler import Scheduler
from corelane.scheduler.daemon import exposition
from corelane.scheduler.daemon.daemon import SchedulerDaemon
from corelane.scheduler.daemon.exposition import Counter, Gauge, Histogram, exponential
from corelane.scheduler.daemon.families import Families
from corelane.scheduler.daemon.leader_election import LeaderElector, LeaseSettings
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from support.scheduled_cluster import ScheduledCluster

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
    known = {metric.name: metric.labels for metric in SchedulerMetrics("lease")}
    assert {name: known[name] for name in UPSTREAM} == UPSTREAM
    others = {name for name in known if name not in UPSTREAM}
    assert all(name.startswith(("corelane_scheduler_", "process_")) for name in others), others


def test_buckets_are_kube_schedulers() -> None:
    made = Families()
    assert made.attempt_duration.buckets[0] == 0.001
    assert made.attempt_duration.buckets[-1] == pytest.approx(16.384)
    assert made.sli_duration.buckets[-1] == pytest.approx(5242.88)
    assert made.extension_points.buckets[-1] == pytest.approx(0.2048)
    assert made.preemption_victims.buckets == (1, 2, 4, 8, 16, 32, 64)
    assert made.pod_attempts.buckets == (1, 2, 4, 8, 16)


def test_histograms_are_cumulative_and_texts_are_escaped() -> None:
    histogram = Histogram("h", "say \\ and\nnext", exponential(1, 2, 2), ("a",))
    for value in (0.5, 1, 1.5, 9):
        histogram.observe(value, 'x"y\\z\n')
    counter = Counter("c", "help")
    gauge = Gauge("g", "help", lambda: {("1",): 2.5}, ("l",))
    label = 'a="x\\"y\\\\z\\n"'
    assert exposition.text([histogram, counter, gauge]).splitlines() == [
        "# HELP h say \\\\ and\\nnext",
        "# TYPE h histogram",
        f'h_bucket{{{label},le="1"}} 2',
        f'h_bucket{{{label},le="2"}} 3',
        f'h_bucket{{{label},le="+Inf"}} 4',
        f"h_sum{{{label}}} 12",
        f"h_count{{{label}}} 4",
        "# HELP c help",
        "# TYPE c counter",
        "c 0",
        "# HELP g help",
        "# TYPE g gauge",
        'g{l="1"} 2.5',
    ]


async def page(port: int, path: str) -> tuple[int, str]:
    def read() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(read)


def run(story: Callable[[ScheduledCluster, SchedulerDaemon, int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = APIServer(tokens={"t": User("admin", ("system:masters",))})
        await server.start()
        client, election = (KubeClient.connect_to(server.url, "t") for _ in range(2))
        metrics = SchedulerMetrics("corelane-scheduler")
        elector = LeaderElector(election, LeaseSettings(), "replica", reporter=metrics)

        def make(may_bind: Callable[[], bool]) -> Scheduler:
            return Scheduler(client, reporter=metrics, decisions=metrics, may_bind=may_bind)

        daemon = SchedulerDaemon(make, metrics, elector)
        pages = daemon.server(
            {"/pages/{name}": lambda query: query["name"] if query["name"] != "x" else None}
        )
        port = await pages.start("127.0.0.1", 0)
        stop = asyncio.Event()
        running = asyncio.create_task(daemon.run(stop))
        try:
            async with asyncio.timeout(60):
                await story(ScheduledCluster(client), daemon, port)
                stop.set()
                await running
        finally:
            running.cancel()
            await pages.stop()
            await client.close()
            await election.close()
            await server.stop()

    asyncio.run(main())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.05)


def test_a_daemon_shows_health_and_what_it_did() -> None:
    async def story(cluster: ScheduledCluster, daemon: SchedulerDaemon, port: int) -> None:
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
        assert attempts['result="scheduled",profile="corelane-scheduler"'] == 1
        assert attempts['result="unschedulable",profile="corelane-scheduler"'] >= 1
        assert values["scheduler_pod_scheduling_sli_duration_seconds_count"] == {'attempts="1"': 1}
        assert values["scheduler_preemption_attempts_total"][""] >= 1
        assert (
            values["scheduler_queue_incoming_pods_total"]['queue="active",event="UnschedulablePodAdd"'] == 2
        )
        assert values["corelane_scheduler_bindings_total"] == {'outcome="bound"': 1}
        assert values["leader_election_master_status"] == {'name="corelane-scheduler"': 1}
        assert values["scheduler_cache_size"]['type="nodes"'] == 1
        assert values["process_open_fds"][""] > 3
        assert await page(port, "/pages/y") == (200, '"y"')
        assert (await page(port, "/pages/x"))[0] == 404
        assert (await page(port, "/other"))[0] == 404
        await cluster.client.delete(Pod, "large", namespace="default", grace_seconds=0)

        async def gone() -> bool:
            return parsed((await page(port, "/metrics"))[1]).get("scheduler_unschedulable_pods", {}) == {}

        await until(gone)

    run(story)


def test_a_daemon_is_not_ready_before_all_is_listed() -> None:
    async def story(cluster: ScheduledCluster, daemon: SchedulerDaemon, port: int) -> None:
        while daemon.scheduler is None or not daemon.scheduler.synced:
            await asyncio.sleep(0.01)
        daemon.scheduler._started = False
        status, text = await page(port, "/readyz")
        assert status == 500
        assert "[-]informer-sync failed: nodes, topologies and pods are not listed yet" in text
        assert (await page(port, "/livez"))[0] == 200

    run(story)


def test_preemption_is_counted_by_attempts_victims_and_what_became_of_them() -> None:
    async def story(cluster: ScheduledCluster, daemon: SchedulerDaemon, port: int) -> None:
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

    run(story)
