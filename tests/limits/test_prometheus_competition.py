"""Requests advised from Prometheus: weights by kube-state-metrics, use and pressure by cAdvisor."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from corelane.app.limits import prometheus, prometheus_competition
from corelane.app.limits.prometheus import PrometheusServer
from corelane.cli import main
from corelane.kernel import cfs
from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice import judgement, starvation
from corelane.limits.advice.inference import Effort
from corelane.limits.measure import Latency, Measurement, RequestLog
from support import prometheus_fake

UIDS = {
    name: f"{number:08x}-2222-3333-4444-555555555555"
    for number, name in enumerate(("web", "batch", "db", "job"), 17)
}
LATENCY = [(number / 15, 100.0 if number < 300 else 60_000.0) for number in range(450)]


class Cluster:
    """Series of a cluster's containers over 30 s, with what kube-state-metrics says of them."""

    def __init__(self, fake: prometheus_fake.Fake, *, cores: int = 1, exported: bool = False) -> None:
        self.fake, self.exported = fake, exported
        fake.add("kube_node_status_capacity", [(1e9, cores)], node="n1", resource="cpu", unit="core")
        fake.add("kube_node_status_capacity", [(1e9, 7e9)], node="n1", resource="memory", unit="byte")

    def pod(
        self, name: str, qos: str, used: dict[str, tuple[float, float | None]], stalled: float = 0.0
    ) -> None:
        """`used` has CPUs in use and the request in cores of each container; `stalled` its pressure."""
        key = {"namespace": "shop", "pod": name}
        said = {f"exported_{label}": text for label, text in key.items()} | {"namespace": "mon", "pod": "ksm"}
        said = said if self.exported else key
        uid = {"uid": UIDS[name]}
        self.fake.add("kube_pod_info", [(1e9, 1)], **said, **uid, node="n1")
        for each in ("Guaranteed", "Burstable", "BestEffort"):
            self.fake.add(
                "kube_pod_status_qos_class", [(1e9, float(each == qos))], **said, **uid, qos_class=each
            )
        for container, (rate, request) in used.items():
            label = "exported_container" if self.exported else "container"
            names = {**said, label: container}
            if request is not None:
                self.fake.add(
                    "kube_pod_container_resource_requests",
                    [(1e9, request)],
                    **names,
                    node="n1",
                    resource="cpu",
                )
            self._counters({**key, "container": container, "id": f"/{name}/{container}"}, rate, stalled)

    def _counters(self, labels: dict[str, str], rate: float, stalled: float) -> None:
        for metric, each in (
            ("container_cpu_usage_seconds_total", rate),
            ("container_pressure_cpu_waiting_seconds_total", stalled),
            ("container_pressure_cpu_stalled_seconds_total", stalled),
        ):
            self.fake.add(
                metric, [(1e9 + i, each * i) for i in range(31)], **labels, instance="10.0.0.1:10250"
            )


@pytest.fixture
def fake():
    with prometheus_fake.serving() as found:
        yield found


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    for name in ("QUICK", "FULL"):
        monkeypatch.setattr(judgement, name, Effort(4, 2, 1, 1))


def starved(fake: prometheus_fake.Fake, **more) -> None:
    """A web pod of 100m beside a batch pod of 900m that is always busy, on one CPU."""
    cluster = Cluster(fake, **more)
    cluster.pod("web", "Burstable", {"app": (0.1, 0.1)}, stalled=0.8)
    cluster.pod("batch", "Burstable", {"main": (0.9, 0.9)})


def measured(fake: prometheus_fake.Fake) -> dict[str, Measurement]:
    server = PrometheusServer(fake.url)
    found = prometheus_competition.add(server, prometheus.measure(server, "5m")[0])
    assert found.notes == []
    return {each.pod: each for each in found.measured}


def advised(fake: prometheus_fake.Fake, *args: object) -> tuple[dict, Result]:
    arguments = ["limits", "advise", "--prometheus", fake.url, "--pod", "web", "-o", "json", *map(str, args)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["advice"][0], done


@pytest.mark.parametrize("exported", [False, True])
def test_with_a_line_for_each_request_the_request_is_that_of_the_same_weights(fake, tmp_path, exported):
    """cpu.weight 4 and 36 by the kubelet's formula: w / (w + 36) = 0.1725 at weight 8."""
    starved(fake, exported=exported)
    (tmp_path / "log").write_text("\n".join(f"{at} {took}" for at, took in LATENCY))
    found, _ = advised(fake, "--latency", tmp_path / "log")
    assert found["recommended"] == "raise-request", found["why"]
    milli = found["starvation"]["requestMillis"]
    weight = cfs.pod_weight(cfs.shares(milli))
    assert 1000 * weight / (weight + 36) >= 1.15 * 150 - 1
    assert 1000 * (weight - 1) / (weight - 1 + 36) < 1.15 * 150, "the smallest weight that does"
    assert found["starvation"]["neededMillis"] == {"low": 150.0, "high": 150.0}
    assert found["starvation"]["giveWay"][0]["group"] == "shop/batch"
    assert found["why"].startswith("waits at least 800 ms/s for other processes: uses 100m, needs 150m")


def test_without_requests_one_by_one_it_says_what_to_collect(fake):
    starved(fake)
    found, done = advised(fake)
    assert found["answer"] == "leave"
    assert "needs more than 100m" in found["why"]
    assert "--latency FILE" in found["why"] and "corelane limits watch -o json" in found["why"]
    assert found["starvation"]["neededMillis"] == {"low": 100.0, "high": None}
    assert "Infinity" not in done.stdout
    for form in ("table", "html"):
        args = ["limits", "advise", "--prometheus", fake.url, "--pod", "web", "-o", form]
        assert CliRunner().invoke(main, args).exit_code == 0


@pytest.mark.parametrize(
    "without", ["kube_pod_info", "kube_pod_status_qos_class", "container_pressure_cpu_stalled_seconds_total"]
)
def test_a_missing_metric_is_named_with_what_to_do(fake, without):
    starved(fake)
    fake.series = [each for each in fake.series if each[0]["__name__"] != without]
    found, done = advised(fake)
    assert found["starvation"] is None
    (note,) = [each for each in json.loads(done.stdout)["notes"] if "no advice on requests" in each]
    assert note.startswith(f"Prometheus has no {without}: ")


def test_levels_are_those_of_the_kubelets_cgroups(fake):
    """Container, pod, class: Guaranteed pods are beside the classes, not in them."""
    cluster = Cluster(fake, cores=4)
    cluster.pod("web", "Burstable", {"app": (0.1, 0.5), "side": (0.3, 0.25)}, stalled=0.5)
    cluster.pod("batch", "Burstable", {"main": (0.9, 1.0)})
    cluster.pod("db", "Guaranteed", {"main": (1.5, 2.0)})
    cluster.pod("job", "BestEffort", {"main": (0.4, None)})

    def pod(milli: int) -> int:
        return round(cfs.pod_weight(cfs.shares(milli)) * 10.24)

    rivals = measured(fake)["web"].competition
    assert rivals is not None
    containers = {
        name: round(cfs.container_weight(cfs.shares(m)) * 10.24) for name, m in (("app", 500), ("side", 250))
    }
    last = measured(fake)["web"]
    own, beside = (
        (containers["app"], containers["side"])
        if last.container == "app"
        else (containers["side"], containers["app"])
    )
    assert [(claim.own, claim.active) for claim in rivals.claims] == [
        (own, beside),
        (pod(750), pod(1000)),
        (pod(1750), pod(2000) + pod(0)),
    ]
    job = measured(fake)["job"].competition
    assert job is not None
    assert [(claim.own, claim.active) for claim in job.claims][1:] == [
        (pod(0), 0),
        (pod(0), pod(2000) + pod(1750)),
    ]
    database = measured(fake)["db"].competition
    assert database is not None
    assert [(claim.own, claim.active) for claim in database.claims][1:] == [(pod(2000), pod(1750) + pod(0))]
    assert last.cpus == 4


def test_throttling_is_no_wait_for_others():
    """Pressure contains it: of 800 ms/s 790 are due to the limit."""
    rivals = Measurement(Rates(30.0, used=200.0, throttled=790.0, stalled=800.0, waiting=800.0))
    assert starvation.find(rivals, 200, unified=True) is None


def test_pressure_of_own_threads_alone_is_no_starvation(fake):
    starved(fake)
    found = measured(fake)["web"]
    assert isinstance(found.rates, Rates)
    own = replace(found, rates=replace(found.rates, waiting=900.0, stalled=0.0))
    log = RequestLog(30.0, tuple(round(at * 1e9) for at, _ in LATENCY), tuple(took for _, took in LATENCY))
    assert starvation.find(replace(own, latency=Latency.of_log(log)), 100, unified=True) is None
