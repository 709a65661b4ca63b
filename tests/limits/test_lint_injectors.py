"""Pods to which a sidecar injector adds containers: no QoS class follows from the manifest alone."""

import pytest

from corelane.limits.lint.injectors import TABLE, SidecarInjector
from corelane.limits.lint.linter import lint
from corelane.limits.lint.policy import Policy, from_mapping
from corelane.settings import SettingsError
from support.manifests import amounts, container, only, rules, workload

NOTHING = container("{}")
GUARANTEED = container(amounts("1", limit="1"))


def deployment(meta: str, one: str = NOTHING, namespace: str = "") -> str:
    text = workload(one, meta=f"{{{meta}}}")
    return text.replace("metadata: {name: web}", f"metadata: {{name: web, namespace: '{namespace}'}}")


def namespace(meta: str, name: str = "shop") -> str:
    return f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, {meta}}}\n"


def states_class(*texts: str) -> bool:
    return "BestEffort" in only("no-cpu-request", *texts).message


@pytest.mark.parametrize(
    ("meta", "stated"),
    [
        ("annotations: {sidecar.istio.io/inject: 'true'}", False),
        ("labels: {sidecar.istio.io/inject: 'true'}", False),
        ("labels: {istio.io/rev: canary}", False),
        ("annotations: {linkerd.io/inject: enabled}", False),
        ("annotations: {linkerd.io/inject: ingress}", False),
        ("annotations: {dapr.io/enabled: 'true'}", False),
        ("annotations: {vault.hashicorp.com/agent-inject: 'true'}", False),
        ("annotations: {consul.hashicorp.com/connect-inject: 'true'}", False),
        ("labels: {kuma.io/sidecar-injection: enabled}", False),
        ("annotations: {sidecar.opentelemetry.io/inject: my-collector}", False),
        ("annotations: {instrumentation.opentelemetry.io/inject-java: 'true'}", False),
        ("annotations: {gke-gcsfuse/volumes: 'true'}", False),
        ("annotations: {sidecar.istio.io/inject: 'false'}", True),
        ("labels: {istio.io/rev: canary, sidecar.istio.io/inject: 'false'}", True),
        ("annotations: {linkerd.io/inject: disabled}", True),
        ("annotations: {dapr.io/enabled: 'False'}", True),
        ("annotations: {sidecar.istio.io/inject: }", True),
        ("labels: {app: istio}", True),
        ("annotations: {linkerd.io/inject: disabled, dapr.io/enabled: 'true'}", False),
        ("annotations: {dapr.io/app-id: web}", True),
    ],
)
def test_no_class_is_stated_where_the_pod_switches_an_injector_on(meta, stated):
    assert states_class(deployment(meta)) is stated
    fix = only("cpu-limit", deployment(meta, GUARANTEED)).fix
    assert ("no longer Guaranteed" in fix) is stated


@pytest.mark.parametrize(
    ("meta", "pod", "stated"),
    [
        ("labels: {istio-injection: enabled}", "", False),
        ("labels: {istio.io/rev: stable}", "", False),
        ("annotations: {linkerd.io/inject: enabled}", "", False),
        ("annotations: {sidecar.opentelemetry.io/inject: 'true'}", "", False),
        ("labels: {istio-injection: disabled}", "", True),
        ("labels: {kubernetes.io/metadata.name: shop}", "", True),
        ("labels: {istio-injection: enabled}", "annotations: {sidecar.istio.io/inject: 'false'}", True),
        ("annotations: {linkerd.io/inject: enabled}", "annotations: {linkerd.io/inject: disabled}", True),
        ("labels: {istio-injection: enabled}", "annotations: {linkerd.io/inject: disabled}", False),
    ],
)
def test_a_namespace_switches_an_injector_on_and_its_pods_off(meta, pod, stated):
    there = deployment(pod, namespace="shop")
    assert states_class(namespace(meta), there) is stated
    assert states_class(f"{namespace(meta)}---\n{deployment(pod)}") is stated


MESHED = namespace("labels: {istio-injection: enabled}")


@pytest.mark.parametrize(
    ("files", "stated"),
    [
        ({"ns.yaml": MESHED, "web.yaml": deployment("", namespace="shop")}, False),
        ({"ns.yaml": MESHED, "web.yaml": deployment("", namespace="other")}, True),
        ({"ns.yaml": MESHED, "web.yaml": deployment("")}, True),
        ({"all.yaml": f"{MESHED}---\n{deployment('', namespace='other')}"}, True),
        (
            {
                "kustomization.yaml": "resources: [ns.yaml, web.yaml]\n",
                "ns.yaml": MESHED,
                "web.yaml": deployment(""),
            },
            False,
        ),
        (
            {
                "ns.yaml": f"# Source: shop/templates/ns.yaml\n{MESHED}",
                "web.yaml": f"# Source: shop/templates/web.yaml\n{deployment('')}",
            },
            False,
        ),
    ],
    ids=["named", "another", "unnamed", "another in the file", "kustomization", "release"],
)
def test_a_namespace_counts_for_the_pods_that_go_there(files, stated):
    (found,) = [one for one in lint(files, Policy()).findings if one.rule == "no-cpu-request"]
    assert ("BestEffort" in found.message) is stated


def test_jaegers_operator_reads_the_deployments_own_annotation():
    text = deployment("").replace(
        "{name: web", "{annotations: {sidecar.jaegertracing.io/inject: x}, name: web"
    )
    assert not states_class(text)


def test_exclusive_cpus_of_an_injected_pod_have_a_condition():
    meta, policy = "annotations: {sidecar.istio.io/inject: 'true'}", Policy(exclusive_cpus=True)
    added = "if every container added to the pod has limit = request"
    assert added in only("exclusive-keeps-limit", deployment(meta, GUARANTEED), policy=policy).message
    assert added not in only("exclusive-keeps-limit", deployment("", GUARANTEED), policy=policy).message


@pytest.mark.parametrize(("metric", "capped"), [("resource", False), ("containerResource", True)])
def test_utilisation_of_an_injected_pod_has_no_known_maximum(metric, capped):
    more = ", container: app" if capped else ""
    scaler = (
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec:\n"
        "  scaleTargetRef: {kind: Deployment, name: web}\n  metrics: [{type: Resource, "
        f"{metric}: {{name: cpu{more}, target: {{type: Utilization, averageUtilization: 90}}}}}}]\n"
    )
    meta = "annotations: {sidecar.istio.io/inject: 'true'}"
    assert ("hpa-capped" in rules(f"{scaler}---\n{deployment(meta, GUARANTEED)}")) is capped
    assert "hpa-capped" in rules(f"{scaler}---\n{deployment('', GUARANTEED)}")


def test_a_limit_that_becomes_the_request_changes_a_class_only_where_the_pod_is_guaranteed():
    own = container("{limits: {cpu: 1, memory: 1Gi}}")
    beside = container("{requests: {cpu: 1}, limits: {memory: 1Gi}}", name="side")
    meta = "annotations: {sidecar.istio.io/inject: 'true'}"
    assert "QoS class" in only("request-from-limit", workload(own)).message
    assert "QoS class" not in only("request-from-limit", workload(own, beside)).message
    assert "QoS class" not in only("request-from-limit", deployment(meta, own)).message
    level = "resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}"
    of_pod = workload(own).replace("containers:", f"{level}, containers:")
    assert "changes the share;" in only("request-from-limit", of_pod).message + ";"


def test_a_policy_adds_injectors():
    policy = from_mapping({"sidecarInjectors": [{"pod": "acme.io/inject", "namespace": "acme"}]}, [])
    assert policy.sidecar_injectors == (SidecarInjector("policy", ("acme.io/inject",), ("acme",), "policy"),)
    text = deployment("annotations: {acme.io/inject: 'yes'}")
    assert states_class(text)
    assert "BestEffort" not in only("no-cpu-request", text, policy=policy).message
    around = f"{namespace('labels: {acme: on}')}---\n{deployment('')}"
    assert "BestEffort" not in only("no-cpu-request", around, policy=policy).message


@pytest.mark.parametrize(
    "value", ["acme.io/inject", [{"pods": "a"}], [{}], [{"pod": ["a"]}], [{"pod": " "}], ["a"]]
)
def test_an_injector_that_is_none_is_refused_with_its_place(value):
    with pytest.raises(SettingsError, match=r"^sidecarInjectors"):
        from_mapping({"sidecarInjectors": value}, [])


def test_every_injector_has_a_source():
    assert all(one.source and one.pod for one in TABLE)
