"""`corelane limits advise` from cgroups that are files, real ones, records, Prometheus and lists of pods."""

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.app.limits import advise_inputs
from corelane.cli import main
from corelane.kube.apierrors import APIError
from corelane.kube.pod import Pod
from corelane.limits.advice import judgement
from corelane.limits.advice.inference import Effort
from support import busy_groups, prometheus_fake, up
from support.cpu_groups import Clock, counters, pressure, quiet, use_clock
from support.kubepods import Kubepods, write

A, B = (letter * 64 for letter in "ab")
MEMORY = {"memory": "1Gi"}


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    for name in ("FULL", "QUICK"):
        monkeypatch.setattr(judgement, name, Effort(4, 2, 1, 1))


def run(*args: object) -> Result:
    # Wide enough that no cell wraps.
    return CliRunner(env={"COLUMNS": "400"}).invoke(main, ["limits", "advise", *map(str, args)])


def advised(result: Result, code: int = 0) -> dict[str, dict]:
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)["advice"]
    return {f"{one['kind']}/{one['name']}/{one['container']}": one for one in found}


def option(one: dict, kind: str) -> dict:
    return next(each for each in one["options"] if each["option"] == kind)


def pod(
    name: str, request: str = "200m", limit: str = "200m", owner=("ReplicaSet", "web-5d"), **more
) -> dict:
    """A pod as kubectl prints it; `more` goes into its container, `ident` is the container's id."""
    ident, node = more.pop("ident", ""), more.pop("node", "n1")
    resources = {"requests": {**MEMORY}, "limits": {**MEMORY}}
    resources["requests"] |= {"cpu": request} if request else {}
    resources["limits"] |= {"cpu": limit} if limit else {}
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    container = {"name": "app", "image": "app:1", "resources": resources, **more}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"pod-template-hash": "5d"},
            "ownerReferences": owners,
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "app", "containerID": f"containerd://{ident}"}],
        },
    }


def node(cpus: str = "8", name: str = "n1") -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpus}},
    }


def objects(path: Path, *items: dict) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def row(pod: str, **more) -> dict:
    """What watch writes of a container at 200m with four busy threads."""
    return {
        "namespace": "shop",
        "pod": pod,
        "container": "app",
        "cpuLimitMillis": 200,
        "periodMs": 100.0,
        "burstLimitMs": 0.0,
        "usedMsPerSecond": 200.0,
        "throttledMsPerSecond": 3800.0,
        "periods": 300,
        "throttledPeriods": 300,
        "notes": [],
        **more,
    }


def record(path: Path, *rows: dict, seconds: float = 30.0) -> Path:
    path.write_text(json.dumps({"at": "now", "seconds": seconds, "containers": rows, "notes": []}))
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return objects(tmp_path / "objects.json", pod("web-5d-x1"), pod("web-5d-x2"), node())


def test_a_record_and_a_list_of_pods_give_options_with_effect_risk_and_patch(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"), row("web-5d-x2", throttledMsPerSecond=1000.0))
    (found,) = advised(run(rec, "--pods", shop, "-o", "json")).values()
    assert (found["kind"], found["name"], found["replicas"]) == ("Deployment", "web", 2)
    assert found["pod"] == "web-5d-x1", "the replica that lost most"
    assert (found["answer"], found["recommended"], found["cost"]) == ("change", "drop-limit", "high")
    assert found["fit"]["shape"] == "busy"
    assert found["fit"]["cpus"] == 4
    kinds = [one["option"] for one in found["options"]]
    assert kinds == ["drop-limit", "raise-limit", "set-threads", "whole-cpus"]
    dropped, raised = option(found, "drop-limit"), option(found, "raise-limit")
    assert dropped["recommended"]
    assert dropped["effect"]["throttledMsPerSecond"] == {"low": 0.0, "high": 0.0}
    assert dropped["risk"]["level"] == "low"
    assert raised["deviation"]
    words = shlex.split(dropped["command"])
    assert words[:4] == ["kubectl", "patch", "deployment/web", "--namespace=shop"]
    assert json.loads(words[-1]) == dropped["patch"]


def test_the_table_shows_the_best_option_with_its_command_and_the_others_on_demand(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    result = run(rec, "--pods", shop)
    assert result.exit_code == 0
    for words in ("Deployment shop/web/app", "drop the CPU limit", "kubectl patch deployment/web", "3800"):
        assert words in result.stdout
    assert result.stdout.count("kubectl patch") == 1
    assert run(rec, "--pods", shop, "--all").stdout.count("kubectl patch") > 1


KEYS = """
    kind namespace name container replicas pod node answer why cost cpuLimitMillis cpuRequestMillis qosClass
    seconds usedMsPerSecond throttledMsPerSecond lostShare lostTo competition starvation periods
    throttledPeriods fit recommended options remarks
"""
OPTION_KEYS = "option title recommended deviation effect risk consequences patch command patchNote"


def test_keys_of_json_are_stable(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "--pods", shop, "-o", "json")).values()
    assert list(found) == KEYS.split()
    assert list(found["options"][0]) == OPTION_KEYS.split()


def test_without_a_list_of_pods_there_is_advice_but_no_patch(tmp_path):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "-o", "json")).values()
    assert found["recommended"] == "drop-limit"
    assert all(one["command"] is None for one in found["options"])
    assert "--pods" in option(found, "drop-limit")["risk"]["why"]


def test_the_policys_flags_change_what_is_recommended(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "--pods", shop, "--cpu-limit", "equal-to-request", "-o", "json")).values()
    assert found["recommended"] == "raise-limit"
    policy = tmp_path / "policy.yaml"
    policy.write_text("exclusiveCPUs: false\n")
    (found,) = advised(run(rec, "--pods", shop, "--policy", policy, "-o", "json")).values()
    assert "whole-cpus" not in [one["option"] for one in found["options"]]


def test_threads_from_the_pods_environment_are_used_and_patched(tmp_path):
    listed = objects(
        tmp_path / "o.json", pod("web-5d-x1", env=[{"name": "OMP_NUM_THREADS", "value": "4"}]), node()
    )
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "--pods", listed, "-o", "json")).values()
    threads = option(found, "set-threads")
    assert threads["title"] == "run 1 thread: OMP_NUM_THREADS=1"
    assert threads["effect"]["throttledMsPerSecond"] == {"low": pytest.approx(762, abs=1), "high": 840}
    env = threads["patch"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "OMP_NUM_THREADS", "value": "1", "valueFrom": None}]


def test_exclusive_cpus_keep_their_limit(tmp_path):
    listed = objects(tmp_path / "o.json", pod("db-0", "2", "2", ("StatefulSet", "db")), node())
    rec = record(
        tmp_path / "rec.json",
        row("db-0", cpuLimitMillis=2000, usedMsPerSecond=1900.0, throttledMsPerSecond=90.0),
    )
    (found,) = advised(run(rec, "--pods", listed, "-o", "json")).values()
    assert [one["option"] for one in found["options"]] == ["lift-quota"]
    assert found["qosClass"] == "Guaranteed"


def test_pod_level_resources_alone_decide_the_qos_class(tmp_path):
    listed = pod("web-5d-x1")
    whole = {"cpu": "2", "memory": "1Gi"}
    listed["spec"]["resources"] = {"requests": whole, "limits": whole}
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    result = run(rec, "--pods", objects(tmp_path / "o.json", listed, node()), "-o", "json")
    (found,) = advised(result).values()
    assert "QoS class stays Guaranteed" in option(found, "drop-limit")["consequences"]


def test_an_autoscaler_in_the_list_is_named(tmp_path):
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }
            ],
        },
    }
    listed = objects(tmp_path / "o.json", pod("web-5d-x1"), node(), hpa)
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "--pods", listed, "-o", "json")).values()
    said = " ".join(option(found, "drop-limit")["consequences"])
    assert "HorizontalPodAutoscaler web (target 80 %)" in said
    assert "adds replicas" in said


def test_neighbours_come_from_the_list_and_those_that_ended_do_not_count(tmp_path):
    over = pod("db-0", "8", "", None)
    gone = pod("old", "8", "", None)
    gone["status"]["phase"] = "Succeeded"
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    listed = objects(tmp_path / "o.json", pod("web-5d-x1"), over, node("4"))
    (found,) = advised(run(rec, "--pods", listed, "-o", "json")).values()
    assert option(found, "drop-limit")["risk"]["level"] == "high"
    listed = objects(tmp_path / "o.json", pod("web-5d-x1"), gone, node("4"))
    (found,) = advised(run(rec, "--pods", listed, "-o", "json")).values()
    assert option(found, "drop-limit")["risk"]["level"] == "low"


def test_rounds_of_a_record_are_put_together_and_carry_no_p99(tmp_path, shop):
    rounds = []
    for number in range(300):
        step = number % 10
        used, throttled = (20.0, 80.0) if step < 3 else (10.0 if step == 3 else 0.0, 0.0)
        one = row(
            "web-5d-x1",
            usedMsPerSecond=used * 10,
            throttledMsPerSecond=throttled * 10,
            periods=int(step < 5),
            throttledPeriods=int(step < 3),
        )
        rounds.append(json.dumps({"at": "", "seconds": 0.1, "containers": [one], "notes": []}))
    rec = tmp_path / "rec.jsonl"
    rec.write_text("\n".join(rounds) + '\n{"at": "cut off')
    (found,) = advised(run(rec, "--pods", shop, "-o", "json")).values()
    assert found["seconds"] == 30
    assert found["usedMsPerSecond"] == pytest.approx(70)
    effect = option(found, "drop-limit")["effect"]
    assert effect["throttledMsPerSecond"] == {"low": 0.0, "high": 0.0}
    assert effect["p99"] is None
    assert "--latency" in effect["noP99"]


def test_percentiles_carry_a_p99_or_the_reason_why_not(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    latency = tmp_path / "latency.yaml"
    latency.write_text("p50: 12\np99: 250\nrequestsPerSecond: 50\n")
    (found,) = advised(run(rec, "--pods", shop, "--latency", latency, "-o", "json")).values()
    effect = option(found, "drop-limit")["effect"]
    assert effect["p99"] is None or effect["p99"]["nowMs"] == 250
    assert bool(effect["p99"]) != bool(effect["noP99"])


def test_a_line_for_each_request_gives_the_latency_now(tmp_path, shop):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    log = tmp_path / "requests"
    log.write_text("# sent, ms\n" + "".join(f"{1e9 + number / 20} {100 + number}\n" for number in range(200)))
    latency = advise_inputs.read_latency(log)
    assert latency.quantiles[99.0] == 297
    assert latency.per_second == pytest.approx(20)
    assert latency.log is not None
    assert latency.log.moments[:2] == (0, pytest.approx(50_000_000, abs=1000))
    assert advised(run(rec, "--pods", shop, "--latency", log, "-o", "json"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p99: 5\np99: 6\n", "p99: is given twice (mapping from line 1); give it once"),
        ("p50: 100\np99: 3\n", "p99: 3 ms is less than p50: 100 ms"),
        ("".join(f"{1e12 + 50 * n} 30\n" for n in range(200)), "sent in 10000 s, but 30 s were measured"),
        ("".join(f"{1e6 + n / 1000} 30\n" for n in range(200)), "sent in 0.2 s, but 30 s were measured"),
    ],
    ids=["duplicate", "decreasing", "milliseconds", "another time"],
)
def test_a_latency_that_contradicts_itself_or_the_measurement_is_refused(tmp_path, text, words):
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (latency := tmp_path / "latency").write_text(text)
    result = run(rec, "--latency", latency)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"notes": ["its counters began anew (usage_us): it was restarted meanwhile"]}, "restarted"),
        ({"usedMsPerSecond": None, "throttledMsPerSecond": None}, "neither"),
        ({"usedMsPerSecond": None}, "CPU time is not counted"),
        ({"periods": 2, "throttledPeriods": 2}, "at least 5"),
    ],
)
def test_a_record_that_cannot_carry_advice_is_refused_with_exit_3(tmp_path, change, words):
    rec = record(tmp_path / "rec.json", row("web-5d-x1", **change))
    (found,) = advised(run(rec, "-o", "json"), code=3).values()
    assert found["answer"] == "refused"
    assert words in found["why"]


def test_one_replica_that_can_carry_advice_is_enough(tmp_path, shop):
    broken = row("web-5d-x1", notes=["no samples for 300 s"])
    rec = record(tmp_path / "rec.json", broken, row("web-5d-x2"))
    (found,) = advised(run(rec, "--pods", shop, "-o", "json")).values()
    assert (found["answer"], found["pod"]) == ("change", "web-5d-x2")


def test_counters_beyond_the_cpus_of_the_pods_node_are_refused(tmp_path):
    listed = objects(tmp_path / "o.json", pod("web-5d-x1"), node("2"))
    rec = record(tmp_path / "rec.json", row("web-5d-x1"))
    (found,) = advised(run(rec, "--pods", listed, "-o", "json"), code=3).values()
    assert "more than its 2 CPUs" in found["why"]


def test_a_pods_own_limit_is_explained_by_its_containers(tmp_path, monkeypatch):
    tree = Kubepods(tmp_path / "root", cpus="0-3")
    path = tree.add("u1", A, name="app")
    quiet(path)
    quiet(path.parent)
    write(path.parent / "cgroup.procs", "")
    busy = {"usage": 2_000_000, "periods": 100, "throttled": 100, "us": 38_000_000}
    use_clock(monkeypatch, Clock(lambda: counters(path.parent, **busy)))
    args = ("--root", tree.root, "--data-dir", tmp_path / "none", "-o", "json")
    found = {one["container"]: one for one in advised(run(*args)).values()}
    assert found["app"]["answer"] == "leave"
    assert found[None]["answer"] == "change"
    assert "sum of its containers' limits" in found[None]["why"]


def test_who_was_held_back_by_others_too_gets_bounds_and_is_told_so(tmp_path, monkeypatch):
    tree = Kubepods(tmp_path / "root", cpus="0-3")
    path = tree.add("u1", A, name="app")
    quiet(path)
    write(path / "pids.current", "2")
    write(tree.root / "proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0")

    def work() -> None:
        counters(path, usage=1_200_000, periods=100, throttled=60, us=2_000_000)
        pressure(path, 7_000_000)
        write(tree.root / "proc/stat", "cpu0 900 0 0 100 0 0 0 0\ncpu1 900 0 0 100 0 0 0 0")

    use_clock(monkeypatch, Clock(work))
    args = ("--root", tree.root, "--data-dir", tmp_path / "none", "-o", "json")
    (found,) = advised(run(*args)).values()
    assert found["answer"] == "change"
    assert "other processes or the hypervisor delay it 500 ms/s, too" in found["remarks"][0]
    assert option(found, "drop-limit")["effect"]["throttledMsPerSecond"]["high"] == 0


def test_what_watch_writes_is_read(tmp_path, monkeypatch):
    tree = Kubepods(tmp_path / "root", cpus="0-3")
    path = tree.add("u1", A, name="app")
    quiet(path)
    done = {"usage": 2_000_000, "periods": 100, "throttled": 100, "us": 38_000_000}
    use_clock(monkeypatch, Clock(lambda: counters(path, **done)))
    watching = ["limits", "watch", "--once", "--interval", "10", "-o", "json", "--root", str(tree.root)]
    written = CliRunner().invoke(main, [*watching, "--data-dir", str(tmp_path / "none")])
    (tmp_path / "rec.json").write_text(written.stdout)
    (found,) = advised(run(tmp_path / "rec.json", "-o", "json")).values()
    assert (found["pod"], found["recommended"]) == ("u1", "drop-limit")
    assert found["throttledMsPerSecond"] == 3800


@pytest.mark.parametrize("systemd", [True, False])
def test_this_nodes_containers_are_measured_and_named_by_the_list(tmp_path, monkeypatch, systemd):
    tree = Kubepods(tmp_path / "root", systemd=systemd, cpus="0-3")
    write(tree.root / "proc/stat", "cpu0 0 0 0 0 0 0 0 0")
    path = tree.add("u1", A)
    quiet(path)

    def work() -> None:
        counters(path, usage=2_000_000, periods=100, throttled=100, us=38_000_000)

    use_clock(monkeypatch, Clock(work))
    listed = objects(tmp_path / "o.json", pod("web-5d-x1", ident=A), node())
    args = ("--root", tree.root, "--data-dir", tmp_path / "none", "--pods", listed, "-o", "json")
    (found,) = advised(run(*args)).values()
    assert (found["name"], found["container"], found["recommended"]) == ("web", "app", "drop-limit")
    assert found["fit"]["cpus"] == 4
    assert "kubectl patch deployment/web" in option(found, "drop-limit")["command"]


@pytest.fixture
def prometheus():
    with prometheus_fake.serving() as fake:
        yield fake


def scraped(fake, gap: range = range(0), pod: str = "web-5d-x1") -> None:
    """Half an hour of a container at 200m with four busy threads; some samples are missing."""
    times = [1e9 + 30 * i for i in range(60) if i not in gap]
    labels = {"namespace": "shop", "pod": pod, "container": "app", "id": "/x", "instance": "n1"}
    for metric, rate in (
        ("container_cpu_usage_seconds_total", 0.2),
        ("container_cpu_cfs_throttled_seconds_total", 3.8),
        ("container_cpu_cfs_periods_total", 10),
        ("container_cpu_cfs_throttled_periods_total", 10),
    ):
        fake.add(metric, [(at, rate * (at - 1e9)) for at in times], **labels)
    fake.add("container_spec_cpu_quota", [(times[-1], 20000)], **labels)
    fake.add("container_spec_cpu_period", [(times[-1], 100000)], **labels)


def test_prometheus_carries_advice_for_a_cluster(tmp_path, shop, prometheus):
    scraped(prometheus)
    (found,) = advised(run("--prometheus", prometheus.url, "--pods", shop, "-o", "json")).values()
    assert (found["name"], found["recommended"]) == ("web", "drop-limit")
    assert found["fit"]["cpus"] == pytest.approx(4)


def test_a_gap_in_prometheus_is_a_reason_to_refuse(tmp_path, prometheus):
    scraped(prometheus, gap=range(20, 50))
    (found,) = advised(run("--prometheus", prometheus.url, "-o", "json"), code=3).values()
    assert "no samples for" in found["why"]


def test_a_small_gap_or_an_earlier_run_is_none(tmp_path, prometheus):
    scraped(prometheus, gap=range(20, 24))
    labels = {name: text for name, text in prometheus.series[0][0].items() if name != "__name__"}
    prometheus.add("container_cpu_usage_seconds_total", [(1e9, 70.0)], **{**labels, "id": "/old"})
    (found,) = advised(run("--prometheus", prometheus.url, "-o", "json")).values()
    assert found["recommended"] == "drop-limit"
    assert [remark[:9] for remark in found["remarks"]] == ["no sample", "restarted"]


def test_a_histogram_in_prometheus_gives_the_latency(tmp_path, shop, prometheus):
    scraped(prometheus)
    for bound, count in (("0.1", 50.0), ("0.2", 90.0), ("0.4", 100.0), ("+Inf", 100.0)):
        prometheus.add("latency_bucket", [(1.0, count)], le=bound)
    args = ("--prometheus", prometheus.url, "--pods", shop, "--latency", "latency_bucket", "-o", "json")
    (found,) = advised(run(*args)).values()
    effect = option(found, "drop-limit")["effect"]
    assert effect["p99"] is None or effect["p99"]["nowMs"] == pytest.approx(380)
    assert bool(effect["p99"]) != bool(effect["noP99"])


def test_a_query_that_is_no_histogram_is_said(tmp_path, shop, prometheus):
    scraped(prometheus)
    prometheus.add("up", [(1.0, 1.0)], job="x")
    result = run("--prometheus", prometheus.url, "--pods", shop, "--latency", "up")
    assert result.exit_code == 2
    assert "sum by (le)" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("{tmp}/bad.json",), "bad.json: round 1"),
        (("{tmp}/list.json",), "list.json: round 1"),
        (("{tmp}/empty.json",), "empty.json"),
        (("{tmp}/none.json",), "none.json"),
        (("{tmp}/nan.json",), "nan.json: round 1: used"),
        (("{tmp}/rec.json", "--pods", "{tmp}/empty.json"), "empty.json"),
        (("{tmp}/rec.json", "--pods", "{tmp}/broken.yaml"), "broken.yaml:2:1"),
        (("{tmp}/rec.json", "--pods", "{tmp}/nodes.json"), "kubectl get pods"),
        (("{tmp}/rec.json", "--pods", "{tmp}/odd.json"), "odd.json"),
        (("{tmp}/rec.json", "--pods", "{tmp}/cpu.json"), "pod shop/web: container app: requests.cpu: 'many'"),
        (("{tmp}/rec.json", "--latency", "{tmp}/list.json"), "p99: 340"),
        (("{tmp}/rec.json", "--latency", "{tmp}/latency.yaml"), "p99: 'long'"),
        (("{tmp}/rec.json", "--latency", "{tmp}/missing"), "missing: No such file or directory: name a file"),
        (("{tmp}/rec.json", "--latency", "{tmp}"), "Is a directory: name a file of requests or percentiles"),
        (("{tmp}/rec.json", "--latency", "{tmp}/few"), "few: 2 requests; a 99th percentile requires"),
        (("{tmp}/rec.json", "--latency", "{tmp}/words"), "words:2: '2 slow' is not the time of a request"),
        (("{tmp}/rec.json", "--latency", "{tmp}/at-once"), "all requests were sent at 5"),
        (("{tmp}/rec.json", "--latency", "{tmp}/rate.yaml"), "requestsPerSecond: -1"),
        (("{tmp}/rec.json", "--prometheus", "http://x"), "different sources"),
        (("--prometheus", "http://x", "--window", "soon"), "'soon'"),
        (("--window", "1h"), "--window is for --prometheus"),
        (("{tmp}/rec.json", "--policy", "{tmp}/list.json"), "list.json"),
        (("--cgroup", "{tmp}"), "is not a cgroup"),
    ],
)
def test_bad_input_is_one_line(tmp_path, args, words):
    record(tmp_path / "rec.json", row("web"))
    record(tmp_path / "nan.json", row("web", usedMsPerSecond=-1.0))
    (tmp_path / "bad.json").write_text('{"seconds": 1, "containers": [{"pod": 3}]}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "latency.yaml").write_text("p99: long")
    (tmp_path / "few").write_text("1 20\n2 30\n")
    (tmp_path / "words").write_text("1 20\n2 slow\n")
    (tmp_path / "at-once").write_text("5 20\n" * 100)
    (tmp_path / "rate.yaml").write_text("p99: 20\nrequestsPerSecond: -1\n")
    objects(tmp_path / "nodes.json", node())
    objects(tmp_path / "cpu.json", pod("web", "many"))
    (tmp_path / "odd.json").write_text('{"kind": "List", "items": 3}')
    result = run(*(arg.replace("{tmp}", str(tmp_path)) for arg in args))
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in result.output
    assert words in result.stderr.strip().splitlines()[-1]


def test_nobody_to_advise_is_said_and_exits_with_3(tmp_path):
    rec = record(tmp_path / "rec.json", row("web"))
    result = run(rec, "-n", "nowhere", "-o", "json")
    assert result.exit_code == 3
    assert any("matches the selection" in note for note in json.loads(result.stdout)["notes"])


def test_a_latency_must_be_of_one_container(tmp_path):
    latency = tmp_path / "latency.yaml"
    latency.write_text("p99: 250")
    rec = record(tmp_path / "rec.json", row("web"), row("api"))
    result = run(rec, "--latency", latency)
    assert result.exit_code == 2
    assert "choose one" in result.stderr


def watched(group: Path) -> list[dict]:
    """What `limits watch` measures of a group."""
    args = ["limits", "watch", "--once", "--interval", "2", "-o", "json", "--cgroup", str(group)]
    return json.loads(CliRunner().invoke(main, args).stdout)["containers"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups: needs root")
def test_raising_a_real_limit_as_advised_removes_the_throttling_of_real_busy_loops():
    """The direction and the rough size only: others share this machine."""
    cpus = min(2, len(os.sched_getaffinity(0)))
    with busy_groups.limited(20_000) as group, busy_groups.spinning(group, cpus):
        args = ("--cgroup", group.directories[0], "--seconds", 5.1, "-o", "json")
        (before,) = advised(run(*args)).values()
        assert before["answer"] == "change"
        assert before["fit"]["shape"] == "busy"
        assert before["fit"]["wantsCpus"] == pytest.approx(cpus, rel=0.25)
        raised = option(before, "raise-limit")
        assert raised["effect"]["throttledMsPerSecond"]["high"] == 0
        limit = float(raised["title"].rpartition(" ")[2])
        group.limit(int(limit * 100_000))
        (after,) = watched(group.directories[0])
        assert after["throttledMsPerSecond"] < before["throttledMsPerSecond"] / 10
        assert after["usedMsPerSecond"] > 2 * before["usedMsPerSecond"]


def busy_pod(resources: dict) -> dict:
    spins = up.container("app", "while :; do :; done")
    return up.pod("busy", {**spins, "resources": resources})


def started(cluster: up.Up, wanted: dict) -> None:
    """The pod, anew, and running."""

    async def create(client) -> dict:
        return await client.create(wanted)

    async def is_running(client) -> bool:
        return (await client.get(Pod, "busy", "default")).status.phase == "Running"

    cluster.call(create)
    cluster.until(is_running, "the pod runs")


def refused(cluster: up.Up, patch: dict) -> str:
    """Why the API server does not patch the running pod."""

    async def change(client) -> str:
        try:
            await client.patch(Pod, "busy", patch, namespace="default", kind_of_patch="strategic")
        except APIError as error:
            return str(error)
        return ""

    return cluster.call(change)


def removed(cluster: up.Up) -> None:
    async def delete(client) -> None:
        await client.delete(Pod, "busy", namespace="default")

    async def is_gone(client) -> bool:
        return not (await client.list(Pod)).items

    cluster.call(delete)
    cluster.until(is_gone, "the pod is gone")


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="limits CPU time with cgroups: needs root")
def test_a_pod_of_corelane_up_started_anew_with_the_advised_patch_is_throttled_no_more(tmp_path):
    """Pods cannot be patched, so the patch is what goes into the manifest."""
    amounts = {"cpu": "200m", "memory": "16Mi"}
    wanted = busy_pod({"requests": amounts, "limits": amounts})
    with up.up(tmp_path / "data", "--node-name", "here") as cluster:
        started(cluster, wanted)
        args = ("--data-dir", tmp_path / "data", "--seconds", 6, "-o", "json")
        found = advised(run(*args))["Pod/busy/app"]
        assert (found["qosClass"], found["recommended"]) == ("Guaranteed", "drop-limit")
        dropped = option(found, "drop-limit")
        assert dropped["command"] is None
        assert "create it with this" in dropped["patchNote"]
        assert dropped["risk"]["nodes"][0]["name"] == "here"
        assert "spec: Forbidden: changed: containers" in refused(cluster, dropped["patch"])
        removed(cluster)
        change = dropped["patch"]["spec"]["containers"][0]["resources"]
        limits = {"memory": "16Mi"} | {name: one for name, one in change["limits"].items() if one is not None}
        started(cluster, busy_pod({"requests": amounts | change["requests"], "limits": limits}))
        after = advised(run(*args))["Pod/busy/app"]
        assert after["cpuLimitMillis"] is None
        assert not after["throttledMsPerSecond"]
        assert after["recommended"] in (None, "raise-request"), "what else runs here may hold it back"
