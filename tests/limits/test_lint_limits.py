"""What lint says of CPU limits, requests and threads, and how bad it finds them."""

import pytest

from corelane.limits.lint import thread_settings
from corelane.limits.lint.manifests import POD_PATHS
from corelane.limits.lint.pod_context import quota_cost
from corelane.limits.lint.policy import Policy, Severity
from support.manifests import amounts, container, findings, only, report, rules, workload

GOOD = container(amounts("500m"))
STATIC = Policy(exclusive_cpus=True)


def env(name: str, value: str) -> str:
    return f", env: [{{name: {name}, value: '{value}'}}]"


def field(name: str, resource: str) -> str:
    return f", env: [{{name: {name}, valueFrom: {{resourceFieldRef: {{resource: {resource}}}}}}}]"


@pytest.mark.parametrize("kind", [*POD_PATHS, "Rollout"])
def test_every_kind_of_workload_is_read(kind):
    assert rules(workload(GOOD, kind=kind)) == set()
    assert rules(workload(container(amounts("", limit="")), kind=kind)) == {"no-cpu-request"}


def test_lists_are_taken_apart():
    inner = workload(container("{}")).replace("\n", "\n    ")
    found = report(f"apiVersion: v1\nkind: List\nitems:\n  - {inner}\n")
    assert found.workloads == 1
    assert {one.name for one in found.findings} == {"web"}


def test_an_api_servers_lists_imply_the_kind_of_their_items():
    pod = f"{{metadata: {{name: web}}, spec: {{containers: [{container('{}')}]}}}}"
    found = report(f"apiVersion: v1\nkind: PodList\nitems: [{pod}]\n")
    assert {(one.kind, one.name) for one in found.findings} == {("Pod", "web")}


def test_what_holds_no_containers_is_skipped_and_counted():
    found = report(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n"
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nspec: {template: {spec: {domain: {}}}}\n---\n"
        "replicas: 3\n---\n- 1\n"
    )
    assert found.findings == ()
    assert dict(found.skipped) == {"": 2, "Service": 1, "VirtualMachine.kubevirt.io": 1}


@pytest.mark.parametrize(
    ("limit", "severity"),
    [("100m", Severity.ERROR), ("500m", Severity.ERROR), ("800m", Severity.WARNING), ("2", Severity.WARNING)],
)
def test_severity_goes_by_the_time_that_one_thread_loses_for_certain(limit, severity):
    found = only("cpu-limit", workload(container(amounts("50m", limit=limit))))
    assert found.severity is severity


def test_a_limit_says_what_it_costs_one_thread_and_several():
    found = only("cpu-limit", workload(container(amounts("200m", limit="200m", memory_limit="2Gi"))))
    assert "20 ms in every 100 ms" in found.message
    assert "one busy thread uses it up in 20 ms and is stopped for 80 ms" in found.message
    assert "4 busy threads use it up in 5 ms and are stopped for 95 ms" in found.message
    assert found.cost == quota_cost(20_000, 100_000, 4)
    assert found.cost.lost_ms_per_s == pytest.approx(3800)


def test_a_quota_that_feeds_all_threads_is_no_alarm():
    """Half of its periods may read as throttled with 0.1 % lost: counters, not time."""
    found = only("cpu-limit", workload(container(amounts("1", limit="2"), more=env("GOMAXPROCS", "2"))))
    assert found.severity is Severity.INFO
    assert found.cost.lost_ms_per_s == 0
    assert not report(workload(container(amounts("1", limit="2"), more=env("GOMAXPROCS", "2")))).at_least(
        Severity.WARNING
    )


def test_a_limit_that_no_node_can_reach_is_no_alarm():
    text = workload(container(amounts("1", limit="8")))
    assert only("cpu-limit", text, policy=Policy(node_cpus=4)).severity is Severity.INFO
    assert only("cpu-limit", text, policy=Policy(node_cpus=16)).severity is Severity.WARNING


def test_the_fix_keeps_the_request_and_comes_as_a_patch():
    found = only("cpu-limit", workload(container(amounts("250m", limit="500m"))))
    assert "remove limits.cpu and keep requests.cpu: 250m" in found.fix
    assert found.patch == {
        "spec": {
            "template": {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": None}}}]}}
        }
    }


def test_a_request_that_only_the_limit_gives_is_written_out_before_the_limit_goes():
    text = workload(container(amounts("", limit="500m")), kind="CronJob")
    assert "request-from-limit" in rules(text)
    assert "replace limits.cpu by requests.cpu: 500m" in only("cpu-limit", text).fix
    patch = only("cpu-limit", text).patch["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert patch["containers"][0]["resources"] == {"limits": {"cpu": None}, "requests": {"cpu": "500m"}}


@pytest.mark.parametrize("kind", ["Pod", "Job", "Rollout"])
def test_no_patch_is_offered_where_none_would_be_taken(kind):
    assert only("cpu-limit", workload(container(amounts("250m", limit="500m")), kind=kind)).patch is None


def test_a_guaranteed_pod_with_a_fractional_limit_is_told_that_its_class_changes():
    assert "Burstable" in only("cpu-limit", workload(container(amounts("500m", limit="500m")))).fix


@pytest.mark.parametrize(
    "more", [", command: [/usr/bin/java, -jar, a.jar]", env("JAVA_OPTS", "-Xmx1g"), "eclipse-temurin:21"]
)
def test_a_jvm_is_told_that_it_sees_the_nodes_cpus_without_a_limit(more):
    text = workload(container(amounts("2", limit="2500m"), more=more if more.startswith(",") else ""))
    text = text if more.startswith(",") else text.replace("image: app", f"image: {more}")
    assert "ActiveProcessorCount" in only("cpu-limit", text).fix


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_batch_workloads_limit_is_only_mentioned_unless_the_policy_minds(kind):
    text = workload(container(amounts("50m", limit="100m")), kind=kind)
    assert only("cpu-limit", text).severity is Severity.INFO
    strict = Policy(batch_cpu_limit="never")
    assert only("cpu-limit", text, policy=strict).severity is Severity.ERROR


def test_an_init_containers_limit_is_only_mentioned_but_a_sidecars_counts():
    limited = amounts("50m", limit="100m")
    init = container(limited, name="init")
    sidecar = container(limited, name="side", more=", restartPolicy: Always")
    found = findings(workload(GOOD, init=(init, sidecar)))
    severities = {one.container: one.severity for one in found if one.rule == "cpu-limit"}
    assert severities == {"init": Severity.INFO, "side": Severity.ERROR}
    (patch,) = [one.patch for one in found if one.container == "side" and one.patch]
    assert "initContainers" in patch["spec"]["template"]["spec"]


def test_whole_cpus_of_a_guaranteed_pod_keep_their_limit():
    text = workload(container(amounts("4", limit="4")))
    assert rules(text, policy=STATIC) == {"exclusive-keeps-limit"}
    assert "keep the limit" in only("exclusive-keeps-limit", text, policy=STATIC).fix
    assert rules(text) == {"cpu-limit"}, "the kubelet's default CPU manager policy is none"


def test_a_sidecars_limit_stays_too_where_the_main_containers_cpus_hang_on_it():
    side = container(amounts("50m", limit="50m"), name="log")
    found = findings(workload(container(amounts("2", limit="2")), side), policy=STATIC)
    assert {one.rule for one in found} == {"exclusive-keeps-limit"}
    (about,) = [one for one in found if one.container == "log"]
    assert "the exclusive CPUs of app depend on" in about.message
    assert "is stopped for 95 ms" in about.message
    assert "raise its request and limit together" in about.fix
    assert about.severity is Severity.INFO


@pytest.mark.parametrize(
    ("cpus", "flagged"), [(("2", "500m"), {"app", "log"}), (("1500m", "500m"), set()), (("2", "1"), set())]
)
def test_an_lsr_pods_cpus_are_exclusive_if_their_sum_is_an_integer(cpus, flagged):
    main, side = (amounts(cpu, limit=cpu) for cpu in cpus)
    text = workload(
        container(main), container(side, name="log"), meta="{labels: {koordinator.sh/qosClass: LSR}}"
    )
    assert {one.container for one in findings(text) if one.rule == "cpu-limit"} == flagged


def test_a_sidecar_that_costs_the_main_container_its_cpus_is_named():
    main, side = container(amounts("4", limit="4")), container(amounts("100m", memory_limit=""), name="log")
    found = only("exclusive-cpus-lost", workload(main, side), policy=STATIC)
    assert found.container == "app"
    assert "log has no cpu limit and has no memory limit" in found.message


def test_a_limit_that_the_runtime_lifts_is_only_mentioned():
    text = workload(container(amounts("1", limit="100m")), meta="{annotations: {cpu-quota.crio.io: disable}}")
    assert only("cpu-limit", text).severity is Severity.INFO


def test_a_limit_of_the_pod_as_a_whole_is_a_limit():
    text = workload(GOOD, spec=", resources: {requests: {cpu: 100m}, limits: {cpu: 200m, memory: 1Gi}}")
    assert "on the pod as a whole" in only("cpu-limit", text).message


def test_a_containers_limit_does_not_decide_the_class_beside_pod_level_resources():
    level = "{cpu: 2, memory: 1Gi}"
    text = workload(
        container(amounts("1", limit="1")), spec=f", resources: {{requests: {level}, limits: {level}}}"
    )
    found = [one for one in findings(text) if one.rule == "cpu-limit" and one.container == "app"]
    assert [one.fix.count("Guaranteed") for one in found] == [0]


def test_a_limit_of_zero_is_none():
    assert "cpu-limit" not in rules(workload(container(amounts("100m", limit="0"))))


def test_policy_may_want_limits_equal_to_requests():
    policy = Policy(cpu_limit="equal-to-request")
    assert "cpu-limit" not in rules(workload(container(amounts("500m", limit="500m"))), policy=policy)
    found = only("cpu-limit", workload(container(amounts("250m", limit="500m"))), policy=policy)
    amount = {"cpu": "1"}
    assert found.patch["spec"]["template"]["spec"]["containers"][0]["resources"] == {
        "requests": amount,
        "limits": amount,
    }, "a limit that is no whole number would be the next finding"
    one_thread = container(amounts("250m", limit="500m"), more=env("GOMAXPROCS", "1"))
    assert only("cpu-limit", workload(one_thread), policy=policy).fix == "set limits.cpu to the request, 250m"


@pytest.mark.parametrize(
    ("more", "threads"),
    [
        (env("GOMAXPROCS", "8"), 8),
        (env("OMP_NUM_THREADS", "8,2"), 8),
        (env("JAVA_TOOL_OPTIONS", "-Xmx1g -XX:ActiveProcessorCount=8"), 8),
        (", command: [java], args: ['-XX:ActiveProcessorCount=8', -jar, a.jar]", 8),
        (", args: [gunicorn, --workers, '4', --threads=2, app]", 8),
        (", args: [gunicorn, -w, '8', app]", 8),
        (", command: [nginx, -g, 'worker_processes 8; daemon off;']", 8),
        (", env: [{name: WEB_CONCURRENCY, value: '2'}, {name: OMP_NUM_THREADS, value: '4'}]", 8),
        (env("JDK_JAVA_OPTIONS", "-XX:ParallelGCThreads=8 -XX:CICompilerCount=20"), 8),
        (env("CATALINA_OPTS", "-Xmx1g -XX:+UseG1GC -XX:ConcGCThreads=8"), 8),
        (env("KAFKA_JVM_PERFORMANCE_OPTS", "-server -XX:ActiveProcessorCount=8"), 8),
        (", command: [sh, -c, 'exec java -XX:ParallelGCThreads=8 -jar a.jar']", 8),
        (env("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=1 -XX:ParallelGCThreads=8"), 8),
        (env("JAVA_TOOL_OPTIONS", "-XX:ParallelGCThreads=1 -XX:ParallelGCThreads=8"), 8),
        (env("OPENJ9_JAVA_OPTIONS", "-Xgcthreads8"), 8),
        (env("JAVA_OPTS", "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8"), 8),
        (f"{env('JAVA_TOOL_OPTIONS', '-XX:ConcGCThreads=99')}, args: ['-XX:ConcGCThreads=8']", 8),
        (f"{env('_JAVA_OPTIONS', '-XX:ConcGCThreads=8')}, args: ['-XX:ConcGCThreads=99']", 8),
    ],
)
def test_threads_are_seen_in_the_environment_and_the_arguments(more, threads):
    found = only("threads-over-limit", workload(container(amounts("1", limit="1"), more=more)))
    assert found.cost.threads == threads
    assert found.severity is Severity.ERROR
    assert "are stopped for 87.5 ms" in found.message


@pytest.mark.parametrize(
    "options",
    [
        "-XX:ParallelGCThreads=1 -XX:ConcGCThreads=1",
        "-XX:ParallelGCThreads=8 -XX:ParallelGCThreads=1",
        "-XX:ActiveProcessorCount=-1",
        "-XX:ActiveProcessorCount=0 -XX:ConcGCThreads=0",
    ],
)
def test_a_small_collector_says_nothing_about_the_threads_of_the_application(options):
    text = workload(container(amounts("1", limit="1"), more=env("JAVA_OPTS", options)))
    assert not {"threads-over-limit", "bad-thread-count"} & rules(text)
    found = only("cpu-limit", text)
    assert found.cost.threads == 4, "as for a container without settings"
    assert "ActiveProcessorCount" in found.fix


def test_threads_from_the_limit_are_rounded_up_and_fit():
    text = workload(container(amounts("1", limit="1500m"), more=field("GOMAXPROCS", "limits.cpu")))
    assert "threads-over-limit" not in rules(text)
    found = only("cpu-limit", text)
    assert found.cost.threads == 2
    assert found.cost.stall_ms == 25
    assert "set them from requests.cpu" in found.fix


def test_threads_from_a_limit_that_is_not_there_are_the_nodes():
    text = workload(container(amounts("1"), more=field("GOMAXPROCS", "limits.cpu")))
    assert rules(text) == {"threads-follow-limit"}


@pytest.mark.parametrize("value", ["500m", "auto", "0", "-1", "9" * 5000])
def test_a_thread_count_that_is_no_number_is_said(value):
    assert rules(workload(container(amounts("1"), more=env("GOMAXPROCS", value)))) == {"bad-thread-count"}


@pytest.mark.parametrize(
    "image",
    [
        "nginx",
        "nginx:1.27",
        "docker.io/library/nginx@sha256:ab",
        "host:5000/pytorch/pytorch:2",
        "nvcr.io/nvidia/tritonserver:24",
    ],
)
def test_images_known_to_count_the_nodes_cpus_are_named(image):
    one = container(amounts("100m", limit="100m")).replace("image: app", f"image: '{image}'")
    found = only("threads-from-node", workload(one), policy=Policy(node_cpus=96))
    assert found.cost.threads == 96


CPU_LIMIT = "{name: %s, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}"
AUTOTUNE = "{name: NGINX_ENTRYPOINT_WORKER_PROCESSES_AUTOTUNE, value: '%s'}"
UNDETECTED = "{name: ENVOY_CGROUP_CPU_DETECTION, value: 'False'}"


@pytest.mark.parametrize(
    ("image", "more", "counts"),
    [
        ("istio/proxyv2:1.17.8", "", True),
        ("istio/proxyv2:1.17.8", f"env: [{CPU_LIMIT % 'ISTIO_CPU_LIMIT'}]", False),
        ("istio/proxyv2:1.18.0-distroless", "", False),
        ("gcr.io/istio-release/proxyv2@sha256:ab", "", False),
        ("istio/proxyv2:1.9.9", "args: [proxy, --concurrency, '1']", False),
        ("istio/proxyv2:1.26.2", "env: [{name: PROXY_CONFIG, value: '{\"concurrency\":0}'}]", True),
        ("istio/proxyv2:1.26.2", "env: [{name: PROXY_CONFIG, value: '{\"concurrency\":10}'}]", False),
        ("istio/proxyv2:1.9.9", "env: [{name: PROXY_CONFIG, value: '{\"concurrency\":2}'}]", False),
        ("istio/proxyv2:1.9.9", "env: [{name: PROXY_CONFIG, value: 'concurrency: 2'}]", False),
        ("istio/proxyv2:1.9.9", "env: [{name: PROXY_CONFIG, value: '{}'}]", True),
        ("envoyproxy/envoy:v1.36.2", "", True),
        ("envoyproxy/envoy:v1.36.2", "args: [--concurrency=1]", False),
        ("envoyproxy/envoy:v1.37.0", "", False),
        ("envoyproxy/envoy:distroless-v1.37-latest", f"env: [{UNDETECTED}]", True),
        ("nginx:1.27", f"env: [{AUTOTUNE % 1}]", False),
        ("nginx:1.27", f"env: [{AUTOTUNE % ''}]", True),
        ("nginx:1.18", f"env: [{AUTOTUNE % 1}]", True),
        ("docker.io/bitnami/nginx:1.29", f"env: [{AUTOTUNE % 1}]", True),
        ("kubeflow/pytorch-operator:1.7", "", False),
        ("nginx:1.27", f"env: [{AUTOTUNE % 1}], command: [nginx]", True),
        ("acme/pytorch-java:11", "", False),
        ("haproxy:3.0", "", True),
        ("my-nginx-exporter:1", "", False),
    ],
)
def test_software_that_reads_its_limit_does_not_count_the_nodes_cpus(image, more, counts):
    one = container(amounts("1", limit="1"), more=f", {more}" if more else "")
    text = workload(one.replace("image: app", f"image: '{image}'"))
    assert ("threads-from-node" in rules(text)) is counts


@pytest.mark.parametrize(
    ("what", "image", "old", "new"),
    [
        ("the JVM", "eclipse-temurin", "8", "10-jre"),
        ("the JVM", "amazoncorretto", "8", "21"),
        ("the JVM", "openjdk", "8u181-jre", "8u191-jre"),
        ("Go", "docker.io/library/golang", "1.24", "1.25rc1"),
        (".NET", "mcr.microsoft.com/dotnet/aspnet", "3.1", "8.0-alpine"),
    ],
)
def test_runtimes_read_the_limit_from_a_version_on(what, image, old, new):
    (found,) = [one for one in thread_settings.READERS if one.image.search(image)]
    assert found.what == what
    assert found.source
    assert thread_settings.reads_limit(found, new, {}, own=True)
    assert not thread_settings.reads_limit(found, old, {}, own=True)


@pytest.mark.parametrize(
    ("device", "severity"),
    [
        ("nvidia.com/gpu", Severity.INFO),
        ("google.com/tpu", Severity.INFO),
        ("acme.com/nic", Severity.WARNING),
    ],
)
def test_threads_beside_an_accelerator_are_information(device, severity):
    own = f"{{requests: {{cpu: 2}}, limits: {{cpu: 2, memory: 1Gi, {device}: 1}}}}"
    text = workload(container(own).replace("image: app", "image: 'vllm/vllm-openai:v0.11.0'"))
    assert only("threads-from-node", text).severity is severity


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("--tensor-parallel-size=8", False),
        ("--tensor-parallel-size, '2'", False),
        ("serve, m, -tp, '4'", False),
        ("--tensor-parallel-size=1", True),
        ("--model=m", True),
    ],
)
def test_workers_of_vllm_on_several_accelerators_have_one_thread_each(args, found):
    text = workload(container(amounts("2", limit="2"), more=f", args: [{args}]"))
    text = text.replace("image: app", "image: 'vllm/vllm-openai:v0.11.0'")
    assert ("threads-from-node" in rules(text)) is found


@pytest.mark.parametrize(
    ("limit", "threads", "severity"),
    [
        ("40", 80, Severity.WARNING),
        ("100", 128, Severity.WARNING),
        ("128", 128, Severity.INFO),
        ("200", 128, Severity.INFO),
    ],
)
def test_a_large_limit_is_judged_by_threads_that_nodes_can_run(limit, threads, severity):
    found = only("cpu-limit", workload(container(amounts("1", limit=limit))))
    assert (found.cost.threads, found.severity) == (threads, severity)
    assert ("is enough for all of 128 CPUs" in found.message) is (severity is Severity.INFO)


def test_the_articles_case_fails_by_default():
    """PyTorch with limit = request = 4 on 16 CPUs: stopped for 75 ms of every 100 ms."""
    torch = workload(container(amounts("4", limit="4"))).replace("image: app", "image: pytorch/pytorch:2.5")
    found = only("threads-from-node", torch, policy=Policy(node_cpus=16))
    assert (found.severity, found.cost.stall_ms) == (Severity.WARNING, 75)
    assert "threads-from-node" not in rules(torch, policy=Policy(node_cpus=16, exclusive_cpus=True))


@pytest.mark.parametrize(
    ("resources", "meant"),
    [
        ("{limits: {memory: 200m}}", "200Mi"),
        ("{requests: {memory: '0.5'}, limits: {memory: 1Gi}}", "a whole number of bytes"),
        ("{limits: {memory: 512}}", "512Mi"),
        ("{requests: {cpu: 100M}, limits: {memory: 1Gi}}", "100m"),
        ("{requests: {cpu: 10Mi}, limits: {memory: 1Gi}}", "10m"),
        ("{requests: {cpu: 2k}, limits: {memory: 1Gi}}", "2"),
        ("{requests: {cpu: 9000}, limits: {memory: 1Gi}}", "9000m"),
    ],
)
def test_an_amount_that_cannot_be_meant_is_an_error(resources, meant):
    found = only("bad-quantity", workload(container(resources)))
    assert (found.severity, found.fix) == (Severity.ERROR, f"write {meant}, if that is meant")


@pytest.mark.parametrize("memory", ["1Gi", "128M", "1e9", "524288", "1.5Gi", "128974848", "500Ki", "1024Ki"])
def test_usual_amounts_of_memory_are_not_reported(memory):
    expected = {"bad-quantity"} if memory == "500Ki" else set()
    assert (
        rules(workload(container(amounts("1", memory, memory_limit=memory)))) & {"bad-quantity"} == expected
    )


def test_a_request_above_the_largest_nodes_cpus_is_an_error():
    policy = Policy(node_cpus=96)
    big = only("no-node-fits", workload(container(amounts("200"))), policy=policy)
    assert (big.severity, big.container) == (Severity.ERROR, "app")
    assert "200 CPUs requested, 96 on the largest node" in big.message
    two = workload(container(amounts("60")), container(amounts("60"), name="side"))
    assert "120 CPUs requested by the whole pod" in only("no-node-fits", two, policy=policy).message
    first = workload(container(amounts("60")), init=(container(amounts("60"), name="first"),))
    assert "no-node-fits" not in rules(first, policy=policy), "init containers end before"
    assert "no-node-fits" not in rules(workload(container(amounts("200")))), "the nodes are unknown"


@pytest.mark.parametrize("amount", ["1e400", "9" * 400])
def test_an_amount_above_any_machine_does_not_end_the_run(amount):
    text = workload(container(amounts("1", limit=amount)), container(amounts("1", limit="200m"), name="side"))
    found = {(one.container, one.rule): one.severity for one in findings(text)}
    assert found["app", "bad-quantity"] is found["side", "cpu-limit"] is Severity.ERROR


def test_a_limit_of_all_the_nodes_cpus_stops_no_thread_from_the_node():
    torch = workload(container(amounts("16", limit="16"))).replace("image: app", "image: pytorch/pytorch:2.5")
    assert "threads-from-node" not in rules(torch, policy=Policy(node_cpus=16))
    assert "threads-from-node" in rules(torch, policy=Policy(node_cpus=17))


def test_a_fractional_limit_is_said_where_limits_are_allowed():
    text = workload(container(amounts("1500m", limit="1500m")))
    assert rules(text, policy=Policy(cpu_limit="allowed")) == {"fractional-cpu-limit"}


def test_a_container_without_a_request_is_said_to_get_the_least_share():
    assert "BestEffort" in only("no-cpu-request", workload(container("{}"))).message
    assert rules(workload(container("{}")), policy=Policy(cpu_request="optional")) == {"memory-limit-missing"}
    assert rules(workload(container(amounts("0")))) == {"zero-cpu-request"}


@pytest.mark.parametrize(
    ("resources", "rule"),
    [
        (amounts("1", memory_limit=""), "memory-limit-missing"),
        (amounts("1", memory="", memory_limit=""), "memory-limit-missing"),
        (amounts("1", memory_limit="2Gi"), "memory-limit-not-request"),
    ],
)
def test_memory_limit_and_request_are_to_be_equal(resources, rule):
    assert rules(workload(container(resources))) == {rule}
    assert rules(workload(container(resources)), policy=Policy(memory_limit="optional")) == set()


def test_a_memory_limit_alone_is_its_request_too():
    assert rules(workload(container(amounts("1", memory="")))) == set()


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("{requests: {cpu: half, memory: 1Gi}, limits: {memory: 1Gi}}", "'half'"),
        ("{requests: {cpu: -1, memory: 1Gi}, limits: {memory: 1Gi}}", "negative"),
        ("{requests: {cpu: [1], memory: 1Gi}, limits: {memory: 1Gi}}", "must be a quantity"),
        ("{requests: {cpu: '{{ .Values.cpu }}', memory: 1Gi}, limits: {memory: 1Gi}}", "Values"),
    ],
)
def test_amounts_that_are_none_are_errors(resources, words):
    found = only("bad-quantity", workload(container(resources)))
    assert found.severity is Severity.ERROR
    assert words in found.message


def test_amounts_under_a_milli_are_rounded_up_as_by_the_api_server():
    found = only("bad-quantity", workload(container("{requests: {cpu: 1.0005}, limits: {memory: 1Gi}}")))
    assert found.severity is Severity.INFO
    assert "rounds it up to 1001m" in found.message
    # kube-apiserver 1.36.2 stores a pod's 100u as 1m, and so a Deployment's.
    assert "up to 1m" in only("bad-quantity", workload(container("{requests: {cpu: 100u}}"))).message


def test_a_limit_below_the_request_is_refused():
    assert (
        "below the request 2"
        in only("limit-below-request", workload(container(amounts("2", limit="1")))).message
    )


@pytest.mark.parametrize(("period", "limit", "floor"), [(100_000, "5m", "10m"), (5_000, "100m", "200m")])
def test_a_quota_under_a_millisecond_is_rounded_up_and_said(period, limit, floor):
    policy = Policy(cfs_period_us=period, cpu_limit="allowed")
    text = workload(container(amounts("5m", limit=limit)))
    assert floor in only("quota-floor", text, policy=policy).message
    fine = workload(container(amounts("5m", limit=floor)))
    assert "quota-floor" not in rules(fine, policy=policy)


def test_pods_with_pod_level_resources_get_no_exclusive_cpus():
    """The kubelet's gate PodLevelResourceManagers is off by default, so a limit keeps no exclusive CPUs."""
    same = "{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}"
    plain, level = workload(container(same)), workload(container(same), spec=f", resources: {same}")
    assert "exclusive-keeps-limit" in rules(plain, policy=STATIC)
    assert "exclusive-keeps-limit" not in rules(level, policy=STATIC)
    assert "cpu-limit" in rules(level, policy=STATIC)
