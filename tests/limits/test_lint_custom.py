"""Custom resources whose operators make containers: what lint reads in them."""

import pytest

from corelane.limits.lint.custom_resources import CustomResource
from corelane.limits.lint.policy import Policy
from support.manifests import amounts, container, findings, report, rules, workload

LIMITED = "{requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 200m, memory: 1Gi}}"


def custom(api: str, kind: str, spec: str) -> str:
    return f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


@pytest.mark.parametrize(
    ("api", "kind", "spec", "name"),
    [
        ("monitoring.coreos.com/v1", "Prometheus", "{resources: R}", "prometheus"),
        ("monitoring.coreos.com/v1", "Alertmanager", "{resources: R}", "alertmanager"),
        ("monitoring.coreos.com/v1alpha1", "PrometheusAgent", "{resources: R}", "prometheus"),
        ("monitoring.coreos.com/v1", "ThanosRuler", "{resources: R}", "thanos-ruler"),
        (
            "install.istio.io/v1alpha1",
            "IstioOperator",
            "{components: {pilot: {k8s: {resources: R}}}}",
            "discovery",
        ),
        (
            "install.istio.io/v1alpha1",
            "IstioOperator",
            "{components: {ingressGateways: [{name: a}, {name: b, k8s: {resources: R}}]}}",
            "istio-proxy",
        ),
        (
            "install.istio.io/v1alpha1",
            "IstioOperator",
            "{values: {global: {proxy: {resources: R}}}}",
            "istio-proxy",
        ),
        ("argoproj.io/v1alpha1", "Rollout", "{template: {spec: {containers: [C]}}}", "app"),
        ("serving.knative.dev/v1", "Service", "{template: {spec: {containers: [C]}}}", "app"),
        ("serving.knative.dev/v1", "Revision", "{containers: [C]}", "app"),
    ],
)
def test_a_limit_in_a_custom_resource_is_found(api, kind, spec, name):
    text = custom(api, kind, spec.replace("R}", LIMITED + "}").replace("C]", container(LIMITED) + "]"))
    (found,) = findings(text)
    assert (found.rule, found.kind, found.container) == ("cpu-limit", kind, name)
    assert found.place.line == 4


def test_what_the_operator_fills_in_is_not_missing():
    istio = "{components: {pilot: {k8s: {resources: {requests: {memory: 1Gi}}}}, cni: {k8s: {}}}}"
    assert rules(custom("install.istio.io/v1alpha1", "IstioOperator", istio)) == set()
    bare = custom("monitoring.coreos.com/v1", "Prometheus", "{replicas: 2}")
    assert rules(bare) == {"no-cpu-request", "memory-limit-missing"}


def test_further_containers_count_unless_they_are_patches():
    side, patch = container(name="side"), "{name: config-reloader, args: [--x]}"
    text = custom(
        "monitoring.coreos.com/v1",
        "Prometheus",
        f"{{resources: {amounts('1')}, containers: [{side}, {patch}]}}",
    )
    assert {one.container for one in findings(text)} == {"side"}


def test_every_deployment_of_an_operators_bundle_is_judged():
    one = "{name: %s, spec: {template: {spec: {containers: [%s]}}}}"
    deployments = ", ".join(one % (name, container(LIMITED, name=name)) for name in ("manager", "webhook"))
    spec = f"{{install: {{strategy: deployment, spec: {{deployments: [{deployments}]}}}}}}"
    text = custom("operators.coreos.com/v1alpha1", "ClusterServiceVersion", spec)
    found = findings(text)
    assert [(one.rule, one.container) for one in found] == [
        ("cpu-limit", "manager"),
        ("cpu-limit", "webhook"),
    ]
    assert {(one.kind, one.name, one.place.line, one.patch) for one in found} == {
        ("ClusterServiceVersion", "x", 4, None)
    }
    assert report(text).workloads == 2
    empty = report(custom("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "{install: {}}"))
    assert (empty.workloads, empty.skipped) == (0, {"ClusterServiceVersion.operators.coreos.com": 1})


TEMPLATE = f"{{spec: {{containers: [{container(LIMITED)}]}}}}"


@pytest.mark.parametrize(
    ("api", "kind", "spec"),
    [
        ("ray.io/v1", "RayCluster", f"{{headGroupSpec: {{template: {TEMPLATE}}}}}"),
        ("ray.io/v1", "RayCluster", f"{{workerGroupSpecs: [{{template: {TEMPLATE}}}]}}"),
        ("ray.io/v1", "RayJob", f"{{rayClusterSpec: {{headGroupSpec: {{template: {TEMPLATE}}}}}}}"),
        ("ray.io/v1", "RayService", f"{{rayClusterConfig: {{headGroupSpec: {{template: {TEMPLATE}}}}}}}"),
        ("batch.volcano.sh/v1alpha1", "Job", f"{{tasks: [{{template: {TEMPLATE}}}]}}"),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            f"{{replicatedJobs: [{{template: {{spec: {{template: {TEMPLATE}}}}}}}]}}",
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            f"{{leaderWorkerTemplate: {{workerTemplate: {TEMPLATE}}}}}",
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            f"{{leaderWorkerTemplate: {{leaderTemplate: {TEMPLATE}}}}}",
        ),
        ("kubeflow.org/v1", "PyTorchJob", f"{{pytorchReplicaSpecs: {{Worker: {{template: {TEMPLATE}}}}}}}"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", f"{{driver: {{template: {TEMPLATE}}}}}"),
        ("keda.sh/v1alpha1", "ScaledJob", f"{{jobTargetRef: {{template: {TEMPLATE}}}}}"),
        ("flink.apache.org/v1beta1", "FlinkDeployment", f"{{taskManager: {{podTemplate: {TEMPLATE}}}}}"),
        ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", f"{{nodeSets: [{{podTemplate: {TEMPLATE}}}]}}"),
        ("agones.dev/v1", "Fleet", f"{{template: {{spec: {{template: {TEMPLATE}}}}}}}"),
        ("apps.openshift.io/v1", "DeploymentConfig", f"{{template: {TEMPLATE}}}"),
        ("apps.kruise.io/v1alpha1", "CloneSet", f"{{template: {TEMPLATE}}}"),
        ("argoproj.io/v1alpha1", "Workflow", f"{{templates: [{{container: {container(LIMITED)}}}]}}"),
        ("kubevirt.io/v1", "VirtualMachine", f"{{template: {{spec: {{domain: {{resources: {LIMITED}}}}}}}}}"),
    ],
)
def test_pod_templates_are_judged_where_a_known_kind_has_them(api, kind, spec):
    found = report(custom(api, kind, spec))
    assert found.workloads == 1
    assert "cpu-limit" in {one.rule for one in found.findings}


def test_an_unknown_kind_is_counted_with_its_group():
    found = report(custom("batch.example.com/v1", "Job", "{tasks: []}"), custom("v1", "ConfigMap", "{}"))
    assert dict(found.skipped) == {"ConfigMap": 1, "Job.batch.example.com": 1}


def test_objects_of_an_openshift_template_are_judged_with_their_parameters():
    resources = "{requests: {cpu: '${REQUEST}'}, limits: {cpu: '${LIMIT}', memory: 1Gi}}"
    deployment = workload(container(resources)).replace("\n", "\n  ")
    text = (
        "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\n"
        "parameters: [{name: LIMIT, value: 200m}, {name: REQUEST, value: '0.1'}]\n"
        f"objects:\n- {deployment}"
    )
    (found,) = [one for one in findings(text) if one.rule == "cpu-limit"]
    assert found.message.startswith("CPU limit 200m on a service")
    assert "keep requests.cpu: 100m" in found.fix


@pytest.mark.parametrize("api", ["v1", "example.com/v1"])
def test_the_same_kind_of_another_group_is_another_kind(api):
    found = report(custom(api, "Prometheus", f"{{resources: {LIMITED}}}"))
    assert (found.workloads, found.findings) == (0, ())


def test_a_policy_adds_kinds():
    text = custom(
        "kafka.strimzi.io/v1",
        "Kafka",
        f"{{kafka: {{resources: {LIMITED}}}, pools: [{{resources: {LIMITED}}}]}}",
    )
    assert rules(text) == set()
    added = CustomResource(
        "Kafka",
        "kafka.strimzi.io",
        containers=(("kafka", ("spec", "kafka")), ("pool", ("spec", "pools", "*"))),
    )
    found = findings(text, policy=Policy(custom_resources=(added,)))
    assert [one.container for one in found] == ["kafka", "pool"]


SPARK = "sparkoperator.k8s.io/v1beta2"


def test_sparks_core_fields_are_the_pods_amounts():
    """A limit below the cores, which become the request, is refused by the API server; tasks are threads."""
    spec = "{driver: {cores: 1, coreLimit: 1200m}, executor: {cores: 4, coreLimit: 1200m, memory: 512m}}"
    found = {
        (one.container.removeprefix("spark-kubernetes-"), one.rule): one
        for one in findings(custom(SPARK, "SparkApplication", spec))
    }
    assert set(found) == {
        ("driver", "cpu-limit"),
        ("executor", "cpu-limit"),
        ("executor", "limit-below-request"),
        ("executor", "threads-over-limit"),
    }
    assert found["driver", "cpu-limit"].fix == "remove coreLimit and keep coreRequest: 1"
    assert "is below the request 4" in found["executor", "limit-below-request"].message
    assert "4 threads on a limit of 1200m" in found["executor", "threads-over-limit"].message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("", {}),
        ("coreRequest: 500m, memory: 512m, memoryOverhead: 1g", {}),
        ("coreLimit: '2', javaOptions: '-XX:ParallelGCThreads=16'", {"cpu-limit", "threads-over-limit"}),
        ("env: [{name: OMP_NUM_THREADS, value: '8'}], coreLimit: '1'", {"cpu-limit", "threads-over-limit"}),
        ("sidecars: [{name: s, image: s, resources: {limits: {memory: 1Gi}}}]", {"no-cpu-request"}),
        (f"template: {{spec: {{containers: [{container(LIMITED)}]}}}}, coreRequest: 100m", {"cpu-limit"}),
        (
            f"template: {{spec: {{containers: [{container(LIMITED)}]}}}}, coreLimit: 500m",
            {"cpu-limit", "limit-below-request"},
        ),
        ("coreRequest: 10Mi", {"bad-quantity"}),
        ("memory: many", {}),
    ],
)
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_spark_drivers_fields_override_its_template(fields, expected, scheduled):
    spec = f"{{type: Scala, driver: {{{fields}}}, executor: {{}}}}"
    if scheduled:
        text = custom(SPARK, "ScheduledSparkApplication", f"{{schedule: '@daily', template: {spec}}}")
    else:
        text = custom(SPARK, "SparkApplication", spec)
    assert rules(text) == set(expected)


def test_sparks_properties_count_where_its_fields_do_not():
    conf = "{spark.executor.cores: '8', spark.kubernetes.executor.limit.cores: '2'}"
    spec = f"{{sparkConf: {conf}, driver: {{}}, executor: {{coreRequest: 100m}}}}"
    assert rules(custom(SPARK, "SparkApplication", spec)) == {"cpu-limit", "threads-over-limit"}
    spec = spec.replace("coreRequest: 100m", "coreLimit: '16'")
    (found,) = findings(custom(SPARK, "SparkApplication", spec))
    assert "8 threads" in found.message, "the field overrides the property"


def _machine(kind: str, domain: str) -> str:
    template = f"{{spec: {{domain: {domain}}}}}"
    if kind == "VirtualMachinePool":
        return custom(
            "pool.kubevirt.io/v1beta1",
            kind,
            f"{{virtualMachineTemplate: {{spec: {{template: {template}}}}}}}",
        )
    spec = f"{{domain: {domain}}}" if kind == "VirtualMachineInstance" else f"{{template: {template}}}"
    return custom("kubevirt.io/v1", kind, spec)


@pytest.mark.parametrize(
    "kind",
    ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"],
)
def test_a_virtual_machines_cpus_run_under_its_limit(kind):
    limited = "resources: {limits: {cpu: 2, memory: 2Gi}}"
    found = report(_machine(kind, f"{{cpu: {{cores: 2, threads: 2}}, {limited}}}"))
    assert {one.rule for one in found.findings} == {"threads-over-limit", "cpu-limit"}
    assert found.findings[0].message.startswith("vCPUs=4: 4 threads on a limit of 2")
    assert (found.workloads, found.patches) == (1, 0)


@pytest.mark.parametrize(
    ("cpu", "requested"),
    [
        ("cores: 3", 3),
        ("cores: 3, isolateEmulatorThread: true", 4),
        ("cores: 2, sockets: 2, threads: 2, isolateEmulatorThread: true", 9),
        ("sockets: 5", 5),
        ("isolateEmulatorThread: false", 7),
    ],
)
def test_dedicated_cpus_of_a_virtual_machine_are_its_request(cpu, requested):
    """KubeVirt keeps their limit, which exclusive CPUs need."""
    domain = (
        f"{{cpu: {{{cpu}, dedicatedCpuPlacement: true}}, resources: {{limits: {{cpu: 7, memory: 2Gi}}}}}}"
    )
    (found,) = findings(_machine("VirtualMachine", domain), policy=Policy(node_cpus=2))
    assert (found.rule, found.message.partition(" CPUs")[0]) == ("no-node-fits", str(requested))
    assert rules(_machine("VirtualMachine", domain)) == set()
