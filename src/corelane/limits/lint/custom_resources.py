"""Custom resources that hold a pod's template, or `resources` of containers that an operator makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from corelane.limits.lint.located import (
    Located,
    LocatedList,
    LocatedMapping,
    LocatedMember,
    LocatedScalar,
    Position,
    at,
    items,
    pairs,
    place,
    text,
)
from corelane.settings import SettingsError
from corelane.workload.request import launcher_cpus

SPARK_FIELDS: Final = {"limits.cpu": "coreLimit", "requests.cpu": "coreRequest"}
_JVM_SIZE: Final = re.compile(r"(\d{1,9})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_MIB: Final = {"k": 2**-10, "": 1, "m": 1, "g": 2**10, "t": 2**20}
_Member: TypeAlias = LocatedMember | Located | None
_HEAP_MIB: Final = 1024.0
_LEAST_OVERHEAD_MIB: Final = 384.0


def spark_pod(root: Located, path: tuple[str, ...], role: Located) -> Located:
    """Return the driver or executor with the pod that Spark makes of it at `template`.

    Fields override `sparkConf`, and both the amounts of the pod template; an executor runs as many tasks at
    once as it has cores. Source: Spark on Kubernetes, Configuration; spark-operator, API v1beta2.
    """
    name, app, here = path[-1], at(root, *path[:-1]), role.place
    conf, fields = dict(pairs(app, "sparkConf")), dict(pairs(role))

    def own(field: str, of: str) -> LocatedMember | None:
        return fields.get(field) or conf.get(f"spark.{of}")

    cores = own("cores", f"{name}.cores") or LocatedMember(here, _scalar("1", here))
    limit = own("coreLimit", f"kubernetes.{name}.limit.cores")
    request = own("coreRequest", f"kubernetes.{name}.request.cores") or cores
    heap, overhead = (own(field, f"{name}.{field}") for field in ("memory", "memoryOverhead"))
    memory = LocatedMember(heap.place if heap else here, _scalar(_memory(app, heap, overhead), here))
    base, *others = items(role, "template", "spec", "containers") or (LocatedMapping({}, here),)
    variables = {
        "SPARK_EXECUTOR_CORES": cores if name == "executor" else None,
        "extraJavaOptions": own("javaOptions", f"{name}.extraJavaOptions"),
    }
    env = [
        _mapping(member.place, {"name": _scalar(variable, here), "value": member})
        for variable, member in variables.items()
        if member
    ]
    amounts = {
        "requests": {**dict(pairs(base, "resources", "requests")), "cpu": request, "memory": memory},
        "limits": {
            **dict(pairs(base, "resources", "limits")),
            **({"cpu": limit} if limit else {}),
            "memory": memory,
        },
    }
    container: dict[str, _Member] = {
        "name": _scalar(f"spark-kubernetes-{name}", here),
        "image": fields.get("image") or dict(pairs(app)).get("image") or _scalar("spark", here),
        **dict(pairs(base)),
        "resources": _mapping(here, {part: _mapping(here, of) for part, of in amounts.items()}),
        "env": LocatedList((*items(base, "env"), *items(role, "env"), *env), here),
    }
    spec: dict[str, _Member] = {
        **dict(pairs(role, "template", "spec")),
        "initContainers": LocatedList(
            (*items(role, "template", "spec", "initContainers"), *items(role, "initContainers")), here
        ),
        "containers": LocatedList((_mapping(here, container), *others, *items(role, "sidecars")), here),
    }
    metadata = {
        part: _mapping(here, {**dict(pairs(role, "template", "metadata", part)), **dict(pairs(role, part))})
        for part in ("labels", "annotations")
    }
    template = {"metadata": _mapping(here, metadata), "spec": _mapping(here, spec)}
    return _mapping(here, {**fields, "template": _mapping(here, template)})


def _memory(app: Located | None, heap: LocatedMember | None, overhead: LocatedMember | None) -> str:
    """Return request and limit of the memory: the heap, and an overhead that is a share of it."""
    usual = "0.1" if text(app, "type") in ("", "Java", "Scala") else "0.4"
    try:
        factor = float(text(app, "memoryOverheadFactor") or usual)
    except ValueError:
        factor = float(usual)
    mib = _mib(heap, _HEAP_MIB)
    return f"{round(mib + _mib(overhead, max(factor * mib, _LEAST_OVERHEAD_MIB)))}Mi"


def _mib(size: LocatedMember | None, default: float) -> float:
    """Return a JVM's size in MiB: `512m`, `2g`; a number alone is in MiB."""
    match = _JVM_SIZE.fullmatch(text(size.value)) if size else None
    return int(match[1]) * _MIB[match[2].lower()] if match else default


def kubevirt_domain(root: Located, path: tuple[str, ...], domain: Located) -> Located:
    """Return a virtual machine's domain with its vCPUs as threads; dedicated ones become its CPU request.

    They are limit and request, which KubeVirt keeps equal: no limit of the manifest is left to be judged.
    """
    here = place(domain, "cpu")
    parity = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
    annotations = dict(pairs(root, *path[:-2], "metadata", "annotations"))
    vcpus, beside = launcher_cpus(partial(text, domain), to_even=parity in annotations)
    amounts = {part: dict(pairs(domain, "resources", part)) for part in ("requests", "limits")}
    env: tuple[Located, ...] = ()
    if text(domain, "cpu", "dedicatedCpuPlacement") == "true":
        limit = amounts["limits"].pop("cpu", None)
        if vcpus:
            amounts["requests"]["cpu"] = LocatedMember(here, _scalar(str(vcpus + beside), here))
        elif limit:
            amounts["requests"].setdefault("cpu", limit)
    elif vcpus:
        env = (_mapping(here, {"name": _scalar("vCPUs", here), "value": _scalar(str(vcpus), here)}),)
    resources = {part: _mapping(here, of) for part, of in amounts.items() if of}
    members = {**dict(pairs(domain)), "resources": _mapping(here, resources) if resources else None}
    return _mapping(domain.place, {**members, "env": LocatedList(env, here)})


def _scalar(value: str, here: Position) -> LocatedScalar:
    return LocatedScalar(value, plain=False, place=here)


def _mapping(here: Position, members: Mapping[str, _Member]) -> LocatedMapping:
    """Return a mapping of what is not None; a value without a key of its own stands where it is."""
    return LocatedMapping(
        {
            key: member if isinstance(member, LocatedMember) else LocatedMember(member.place, member)
            for key, member in members.items()
            if member is not None
        },
        here,
    )


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
    """Names of amounts in these fields, such as `coreLimit` for `limits.cpu`."""


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
_BATCH_KINDS: Final = """
    Job JobSet MPIJob PyTorchJob RayJob ScaledJob TFJob XGBoostJob PaddleJob JAXJob AdvancedCronJob
"""


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
    *(
        CustomResource(kind, group, pod=pod, each=each, batch=kind in _BATCH_KINDS.split())
        for kind, group, each, pod in _TEMPLATES
    ),
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
    return {(resource.kind, resource.group): resource for resource in (*TABLE, *more)}


def below(node: Located | None, path: Path) -> Iterator[Located]:
    """Yield the values at a path: several where it has `*`."""
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


_PathText = Annotated[
    str,
    Meta(
        pattern=r"^\.*[^.]+(?:\.[^.]+)*\.*$",
        description="a path such as spec.template, or spec.pools.* for each of them",
    ),
]


class CustomResourceSetting(Struct, forbid_unknown_fields=True):
    """An entry of a policy's `customResources`."""

    kind: Annotated[str, Meta(min_length=1, description="the kind of a custom resource")]
    group: str = ""
    pod: _PathText | None = None
    containers: dict[str, _PathText] = {}
    complete: bool = False

    def read(self, field: str) -> CustomResource:
        """Return the custom resource. Raises SettingsError with `field`, the entry's place."""
        if self.pod is None and not self.containers:
            raise SettingsError(
                f"{field}: has neither pod (a path such as spec.template) nor containers (names with paths)"
            )
        return CustomResource(
            self.kind,
            self.group,
            None if self.pod is None else _path(self.pod),
            tuple((name, _path(path)) for name, path in self.containers.items()),
            complete=self.complete,
        )


def _path(text: str) -> Path:
    return tuple(text.strip(".").split("."))
