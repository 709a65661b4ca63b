"""Custom resources that hold a pod's template, or `resources` of containers that an operator makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from corelane.limits.lint.located import Located, LocatedList, LocatedMapping
from corelane.limits.lint.operator_fields import SPARK_FIELDS, kubevirt_domain, spark_pod

Path: TypeAlias = tuple[str, ...]
_EACH: Final = "*"


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A kind and where it describes containers. In a path, `*` is every member or item."""

    kind: str
    group: str
    pod: Path | None = None
    """Path of what holds the pod's metadata and spec; None where the operator makes the pod."""
    containers: tuple[tuple[str, Path], ...] = ()
    """Containers by name, with the path of what holds their `resources`."""
    each: tuple[Path, ...] = ()
    """Paths of the workloads that it makes, each with a pod at `pod`; empty where it is one itself."""
    batch: bool = False
    """Whether its pods run to their end."""
    more: Path = ()
    """Path of a list of further containers."""
    complete: bool = False
    """Whether amounts that the object does not set are unset, as no default of the operator fills them."""
    whole: bool = False
    """Whether the operator makes the pod as it is written, without containers or amounts of its own.

    Of others no QoS class is known: Knative adds its queue-proxy, the Prometheus operator a reloader.
    """
    written: Callable[[Located, Path, Located], Located] | None = None
    """Writes fields of the operator's own, at a path, as the pod or `resources` that it makes of them."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """What amounts are called in these fields, such as `coreLimit` for `limits.cpu`."""


def _component(name: str, container: str, *each: str) -> tuple[str, Path]:
    return container, ("spec", "components", name, *each, "k8s")


def _prometheus(kind: str, container: str) -> CustomResource:
    return CustomResource(
        kind,
        "monitoring.coreos.com",
        containers=((container, ("spec",)),),
        more=("spec", "containers"),
        complete=True,
    )


_TEMPLATE: Final = ("template",)
_RAY: Final = (("headGroupSpec",), ("workerGroupSpecs", _EACH))
_TEMPLATES: Final[tuple[tuple[str, str, tuple[Path, ...], Path], ...]] = (
    ("RayCluster", "ray.io", tuple(("spec", *path) for path in _RAY), _TEMPLATE),
    ("RayJob", "ray.io", tuple(("spec", "rayClusterSpec", *path) for path in _RAY), _TEMPLATE),
    ("RayService", "ray.io", tuple(("spec", "rayClusterConfig", *path) for path in _RAY), _TEMPLATE),
    ("Job", "batch.volcano.sh", (("spec", "tasks", _EACH),), _TEMPLATE),
    ("JobSet", "jobset.x-k8s.io", (("spec", "replicatedJobs", _EACH, "template", "spec"),), _TEMPLATE),
    (
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        tuple(("spec", "leaderWorkerTemplate", which) for which in ("leaderTemplate", "workerTemplate")),
        (),
    ),
    *(
        (kind, "kubeflow.org", (("spec", replicas, _EACH),), _TEMPLATE)
        for kind, replicas in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("MPIJob", "mpiReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
        )
    ),
    ("ScaledJob", "keda.sh", (("spec", "jobTargetRef"),), _TEMPLATE),
    ("Fleet", "agones.dev", (("spec", "template", "spec"),), _TEMPLATE),
    ("GameServer", "agones.dev", (("spec",),), _TEMPLATE),
    (
        "FlinkDeployment",
        "flink.apache.org",
        (("spec",), ("spec", "jobManager"), ("spec", "taskManager")),
        ("podTemplate",),
    ),
    ("Elasticsearch", "elasticsearch.k8s.elastic.co", (("spec", "nodeSets", _EACH),), ("podTemplate",)),
    ("Kibana", "kibana.k8s.elastic.co", (("spec",),), ("podTemplate",)),
    (
        "ClickHouseInstallation",
        "clickhouse.altinity.com",
        (("spec", "templates", "podTemplates", _EACH),),
        (),
    ),
    ("AdvancedCronJob", "apps.kruise.io", (("spec", "template", "jobTemplate", "spec"),), _TEMPLATE),
    (
        "SeldonDeployment",
        "machinelearning.seldon.io",
        (("spec", "predictors", _EACH, "componentSpecs", _EACH),),
        (),
    ),
)
"""Kinds with whole pod templates: kind, group, paths of what holds a template, and its path there."""
_STEPS: Final = (
    ("container", ("container",)),
    ("script", ("script",)),
    ("container", ("containerSet", "containers", _EACH)),
    ("sidecar", ("sidecars", _EACH)),
    ("init", ("initContainers", _EACH)),
)
_BATCH_KINDS: Final = frozenset(
    {
        "Job",
        "JobSet",
        "MPIJob",
        "PyTorchJob",
        "RayJob",
        "ScaledJob",
        "TFJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "AdvancedCronJob",
    }
)


def _templates(kind: str, group: str, each: tuple[Path, ...], pod: Path) -> CustomResource:
    return CustomResource(kind, group, pod=pod, each=each, batch=kind in _BATCH_KINDS)


TABLE: Final = (
    _prometheus("Prometheus", "prometheus"),
    _prometheus("PrometheusAgent", "prometheus"),
    _prometheus("Alertmanager", "alertmanager"),
    _prometheus("ThanosRuler", "thanos-ruler"),
    CustomResource(
        "IstioOperator",
        "install.istio.io",
        containers=(
            _component("pilot", "discovery"),
            _component("cni", "install-cni"),
            _component("ingressGateways", "istio-proxy", _EACH),
            _component("egressGateways", "istio-proxy", _EACH),
            ("istio-proxy", ("spec", "values", "global", "proxy")),
            ("istio-init", ("spec", "values", "global", "proxy_init")),
        ),
    ),
    CustomResource("Rollout", "argoproj.io", pod=("spec", "template"), whole=True),
    CustomResource(
        "ClusterServiceVersion",
        "operators.coreos.com",
        pod=("spec", "template"),
        each=(("spec", "install", "spec", "deployments", _EACH),),
        whole=True,
    ),
    *(_templates(*row) for row in _TEMPLATES),
    *(
        CustomResource(
            kind,
            "sparkoperator.k8s.io",
            pod=_TEMPLATE,
            each=((*path, "driver"), (*path, "executor")),
            batch=True,
            written=spark_pod,
            fields=SPARK_FIELDS,
        )
        for kind, path in (
            ("SparkApplication", ("spec",)),
            ("ScheduledSparkApplication", ("spec", "template")),
        )
    ),
    *(
        CustomResource(
            kind, group, containers=(("compute", (*path, "spec", "domain")),), written=kubevirt_domain
        )
        for kind, group, path in (
            ("VirtualMachine", "kubevirt.io", ("spec", "template")),
            ("VirtualMachineInstance", "kubevirt.io", ()),
            ("VirtualMachineInstanceReplicaSet", "kubevirt.io", ("spec", "template")),
            (
                "VirtualMachinePool",
                "pool.kubevirt.io",
                ("spec", "virtualMachineTemplate", "spec", "template"),
            ),
        )
    ),
    *(
        CustomResource(
            kind,
            "argoproj.io",
            containers=tuple((name, (*path, "templates", _EACH, *rest)) for name, rest in _STEPS),
        )
        for kind, path in (
            ("Workflow", ("spec",)),
            ("WorkflowTemplate", ("spec",)),
            ("ClusterWorkflowTemplate", ("spec",)),
            ("CronWorkflow", ("spec", "workflowSpec")),
        )
    ),
    CustomResource("Service", "serving.knative.dev", pod=("spec", "template")),
    CustomResource("Configuration", "serving.knative.dev", pod=("spec", "template")),
    CustomResource("Revision", "serving.knative.dev", pod=()),
)
"""Known without a policy; a policy's `customResources` adds to these, and replaces those of the same kind."""


def by_kind(more: Iterable[CustomResource] = ()) -> Mapping[tuple[str, str], CustomResource]:
    """The table with further entries, by kind and API group."""
    return {(one.kind, one.group): one for one in (*TABLE, *more)}


def below(node: Located | None, path: Path) -> Iterator[Located]:
    """What stands at a path: several where it has `*`."""
    if node is None:
        return
    if not path:
        yield node
        return
    head, rest = path[0], path[1:]
    if isinstance(node, LocatedList):
        for item in node.items if head == _EACH else ():
            yield from below(item, rest)
    elif isinstance(node, LocatedMapping):
        for key, member in node.members.items():
            if head in (_EACH, key):
                yield from below(member.value, rest)


def from_setting(value: Any) -> CustomResource:
    """An entry of a policy's `customResources`. Raises ValueError."""
    known = {"kind", "group", "pod", "containers", "complete"}
    if not isinstance(value, dict) or not set(value) <= known or not value.get("kind"):
        raise ValueError(f"{value!r} is not a mapping with a kind, and of group, pod, containers, complete")
    held, pod = value.get("containers") or {}, value.get("pod")
    if not isinstance(held, dict) or not (held or pod is not None):
        raise ValueError("has neither pod (a path such as spec.template) nor containers (names with paths)")
    if not isinstance(value.get("complete", False), bool):
        raise ValueError(f"complete: {value['complete']!r} is neither true nor false")
    return CustomResource(
        str(value["kind"]),
        str(value.get("group") or ""),
        None if pod is None else _path(pod),
        tuple((str(name), _path(path)) for name, path in held.items()),
        complete=value.get("complete", False),
    )


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not all(value.strip(".").split(".")):
        raise ValueError(f"{value!r} is not a path such as spec.template, or spec.pools.* for each of them")
    return tuple(value.strip(".").split("."))
