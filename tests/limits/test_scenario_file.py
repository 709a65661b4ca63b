import pytest

from corelane.limits.model import scenario_file, studies
from corelane.limits.model.bandwidth import KERNELS, CFSLimit, for_kernel
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import run
from corelane.limits.model.scenario_file import ScenarioError
from corelane.limits.model.workloads import Closed, Duration, Open, ThreadPoolServer


def shop() -> dict:
    return {
        "name": "checkout",
        "kernel": "5.15",
        "machine": {"cpus": 8, "hz": 1000},
        "seconds": 2,
        "pods": [
            {
                "name": "shop",
                "containers": [
                    {
                        "name": "app",
                        "request": "500m",
                        "limit": 1,
                        "workload": {"kind": "server", "service": {"mean": "5ms", "sigma": 0.5}, "rate": 20},
                    },
                    {
                        "name": "job",
                        "limit": "0.5",
                        "workload": {"kind": "bursts", "run": "20ms", "every": "1s"},
                    },
                ],
            }
        ],
    }


def changed(path: str, value: object) -> dict:
    """The example with one field set, or taken away by None; `path` is such as pods.0.name."""
    top: dict = shop()
    *way, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    place = top
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return top


APP = "pods.0.containers.0"
JOB = {"name": "b", "workload": {"kind": "spin"}}


def test_a_scenario_is_read_with_kubernetes_defaults():
    one = scenario_file.read(shop())
    app, job = one.pods[0].containers
    assert (app.limit, app.request_milli) == (CFSLimit(100 * MS), 500)
    assert app.workloads == (ThreadPoolServer(Duration(5 * MS, 0.5), Open(20.0)),)
    assert job.request_milli == 500, "a request that is missing is the limit"
    assert one.pods[0].limit == CFSLimit(150 * MS), "all containers have one, so the pod has"
    assert one.kernel == KERNELS["5.14"]
    assert one.machine.tick_ns == MS
    assert one.subject == "shop/app"
    assert run(one).of("shop/job").requests == 2


def test_a_pod_has_no_limit_unless_every_container_has_or_it_is_given():
    assert scenario_file.read(changed("pods.0.containers.1.limit", None)).pods[0].limit is None
    assert scenario_file.read(changed("pods.0.limit", "none")).pods[0].limit is None
    assert scenario_file.read(changed("pods.0.limit", 3)).pods[0].limit == CFSLimit(300 * MS)


def test_single_switches_can_differ_from_a_kernels():
    one = scenario_file.read(changed("kernel", {"version": "5.10", "order": "head", "expiry": True}))
    assert (one.kernel.order, one.kernel.expiry, one.kernel.burst) == ("head", True, False)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("machine", None, "machine is missing"),
        ("machine.cpus", 0, "machine.cpus: '0' is not a whole number from 1 to 1024"),
        ("machine.smtSpeed", 1.5, "machine.smtSpeed: 1.5 is not between 0.1 and 1"),
        ("machine.cpu", 4, "machine.cpu: there is no such field; did you mean cpus?"),
        ("kernel", "two", "kernel: 'two' is not a kernel version"),
        ("kernel", "3.2", "kernel: kernel 3.2 is older than the oldest"),
        ("kernel", 5.10, 'kernel: 5.1 may be 5.1 or 5.10: write it in quotes, as in "5.10"'),
        ("kernel", {"version": 4.1}, "kernel.version: 4.1 may be 4.1 or 4.10"),
        ("kernel", {"order": "last"}, "kernel.order: 'last' is not one of head, mixed, tail"),
        ("seconds", 0, "seconds: 0 is not a time from 0 to 3600 seconds"),
        ("seconds", True, "seconds: True is not a time"),
        ("pods", {}, "pods: expected a list, found {}"),
        ("pods", [], "pods: expected a list"),
        ("pods", ["web"], "pods[0]: expected fields with values, found 'web'"),
        ("subject", "shop/none", "subject: no container 'shop/none'"),
        ("pods.0.name", "a/b", "pods[0].name: 'a/b' is not a name"),
        (f"{APP}.name", "job", "pods[0].containers[1].name: 'job' is there twice"),
        (f"{APP}.limit", "10x", "pods[0].containers[0].limit: '10x' is not an amount of CPU"),
        (f"{APP}.period", "2s", "pods[0].containers[0].limit: a period of 2 s is not between 1 ms and 1 s"),
        (f"{APP}.burst", "101ms", "limit: a burst of 101 ms is more than the quota of 100 ms"),
        ("pods.0.containers.1", JOB | {"phase": "5ms"}, "containers[1].phase: a phase requires a limit"),
        ("pods.0.containers.1", JOB | {"period": "5ms"}, "containers[1].period: a period requires a"),
        ("window", {"start": "2s"}, "window.start: 2000 ms is not before the end at 2 s"),
        (f"{APP}.request", -1, "request: '-1' is not an amount of CPU"),
        (f"{APP}.request", "0.0005", "request: '0.0005' is finer than a thousandth"),
        (f"{APP}.cpus", "4-9", "pods[0].containers[0].cpus: the machine has CPUs 0 to 7 only"),
        (f"{APP}.cpus", "x", "pods[0].containers[0].cpus: "),
        (f"{APP}.pinned", "yes", "pinned: 'yes' is neither true nor false"),
        (f"{APP}.workload.kind", "web", "workload.kind: 'web' is not one of spin, bursts, server"),
        (f"{APP}.workload.service", "5", "workload.service: '5' is not a time"),
        (f"{APP}.workload.service.mean", "0ms", "workload.service: mean: '0ms' must be more than 0"),
        (f"{APP}.workload.service.sigma", 9, "workload.service: sigma: 9 is not between 0 and 4"),
        (f"{APP}.workload.rate", "fast", "workload.rate: 'fast' is not a number"),
        (f"{APP}.workload.clients", 3, "workload: give either rate"),
        (f"{APP}.workload.threads", 0, "workload.threads: '0' is not a whole number"),
        (f"{APP}.workload.thread", 1, "workload.thread: there is no such field; did you mean threads?"),
        ("pods.0.containers.1.workload.pause", "1s", "containers[1].workload: give either every"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_value(path, value, words):
    with pytest.raises(ScenarioError) as caught:
        scenario_file.read(changed(path, value))
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_what_is_no_mapping_is_no_scenario(value):
    with pytest.raises(ScenarioError, match="expected fields"):
        scenario_file.read(value)


@pytest.mark.parametrize("version", ["5.10", 5.4, 6.18, 6])
def test_a_kernel_that_yaml_reads_as_a_number_is_taken_where_it_is_unambiguous(version):
    if version == 6:
        with pytest.raises(ScenarioError, match="is not a kernel version"):
            scenario_file.read(changed("kernel", version))
    else:
        assert scenario_file.read(changed("kernel", version)).kernel == for_kernel(str(version))


def test_variants_change_the_subject_and_the_pods_limit_with_it():
    base = scenario_file.read(shop())

    def app(text: str):
        return studies.vary(base, text).container("shop/app")

    assert app("limit=2").limit == CFSLimit(200 * MS)
    assert studies.vary(base, "limit=2").pods[0].limit == CFSLimit(250 * MS)
    assert app("no-limit").limit is None
    assert studies.vary(base, "no-limit").pods[0].limit is None
    assert app("burst=40ms").limit == CFSLimit(100 * MS, burst_ns=40 * MS)
    assert app("period=10ms").limit == CFSLimit(10 * MS, 10 * MS)
    assert app("threads=3").workloads[0].threads == 3
    assert app("limit=500m,period=20ms").limit == CFSLimit(10 * MS, 20 * MS)
    assert studies.vary(base, "kernel=4.14").kernel == KERNELS["3.17"]
    old = studies.vary(base, "kernel=5.4")
    assert studies.vary(old, "burst=40ms,kernel=6.6").kernel == KERNELS["6.6"]
    assert studies.vary(base, "cpus=2").machine.cpus == 2


def test_exclusive_cpus_are_taken_from_the_others_and_come_without_quota():
    base = scenario_file.read(shop())
    one = studies.vary(base, "exclusive=2")
    app, job = one.pods[0].containers
    assert (app.cpus, app.limit, app.request_milli) == (0b11, None, 2000)
    assert job.cpus == 0b11111100
    assert one.pods[0].limit is None, "as the kubelet lifts the pod's quota too"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("limits=1", "there is no 'limits'; there are limit, no-limit"),
        ("limit=x", "variant 'limit=x': 'x' is not an amount of CPU"),
        ("burst=1s", "a burst of 1 s is more than the quota"),
        ("period=2s", "a period of 2 s is not between"),
        ("period=0", "must be more than 0"),
        ("threads=none", "'none' is not a whole number"),
        ("exclusive=8", "leave none for other containers"),
        ("no-limit=3", "takes no value"),
        ("burst=1ms,kernel=5.4", "this kernel has no burst"),
        ("no-limit,burst=1ms", "app has no limit to change"),
    ],
)
def test_a_variant_that_cannot_be_says_why(text, words):
    with pytest.raises(ValueError, match="variant") as caught:
        studies.vary(scenario_file.read(shop()), text)
    assert words in str(caught.value)


def test_clients_and_times_are_read():
    one = scenario_file.read(
        changed(f"{APP}.workload", {"kind": "server", "service": "250us", "clients": 3, "think": "1ms"})
    )
    assert one.pods[0].containers[0].workloads == (ThreadPoolServer(Duration(250 * US), Closed(3, MS)),)


def spun_ms(*limits: str, period: str = "100ms", change: str = "") -> list[float]:
    """CPU time of spinning containers of a pod in a second, each on a CPU of its own, with ticks of 0."""
    containers = [
        {"name": f"c{i}", "limit": limit, "period": period, "cpus": str(i), "workload": {"kind": "spin"}}
        for i, limit in enumerate(limits)
    ]
    machine = {"cpus": len(limits), "hz": 0}
    tree = {"machine": machine, "seconds": 10, "pods": [{"name": "a", "containers": containers}]}
    scenario = scenario_file.read(tree)
    outcome = run(studies.vary(scenario, change) if change else scenario)
    return [1000 * outcome.of(f"a/c{i}").cpus_used for i in range(len(limits))]


@pytest.mark.parametrize(
    ("limits", "period", "change", "per_second"),
    [
        (["5m"], "100ms", "", 10),
        (["10m"], "100ms", "", 10),
        (["200m"], "2ms", "", 500),
        (["500m"], "100ms", "limit=1m", 10),
        (["5m", "5m"], "100ms", "", 10),  # the pod's 10m are 1 ms, not 2
    ],
)
def test_a_quota_under_1_ms_is_rounded_up_as_the_kubelet_does(limits, period, change, per_second):
    assert sum(spun_ms(*limits, period=period, change=change)) == pytest.approx(per_second, rel=0.1)
