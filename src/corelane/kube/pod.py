"""Pods: the fields that a scheduler considers, and that a node agent starts and reports."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import Raw, field

from corelane.kube.meta import API, Condition, Object, ResourceList, Wire


class ResourceRequirements(Wire, frozen=True):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class ObjectFieldSelector(Wire, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(Wire, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: str | int = ""


class KeySelector(Wire, frozen=True):
    """A key of a config map or secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvVarSource(Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    working_dir: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    """`Always` makes an init container a sidecar (KEP-753); empty follows the pod's."""


class NodeSelectorRequirement(Wire, frozen=True):
    """`operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """All requirements must hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """One of the terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Wire, frozen=True):
    """Affinity to other pods is kept as raw JSON, empty where absent."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Raw = Raw()
    pod_anti_affinity: Raw = Raw()


class Toleration(Wire, frozen=True):
    """`operator` empty means Equal; an empty effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class PodSpec(Wire, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    """Pod-level resources (KEP-2837)."""
    overhead: ResourceList = field(default_factory=dict)
    restart_policy: str = "Always"
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: Raw = Raw()
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    host_network: bool = False
    hostname: str = ""


class ContainerStateWaiting(Wire, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Wire, frozen=True):
    started_at: str = ""


class ContainerStateTerminated(Wire, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str = ""
    finished_at: str = ""
    container_id: str = field(name="containerID", default="")


class ContainerState(Wire, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    container_id: str = field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    pod_ip: str = field(name="podIP", default="")
    host_ip: str = field(name="hostIP", default="")
    start_time: str = ""
    nominated_node_name: str = ""


class Pod(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Pod", "pods", namespaced=True)
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Whether all containers have ended and will not restart."""
        return self.status.phase in {"Succeeded", "Failed"}
