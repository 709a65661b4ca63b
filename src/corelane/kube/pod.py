"""Pods: the fields that a scheduler considers, and that a node agent starts and reports; volumes included."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Raw, field
from msgspec.structs import force_setattr

from corelane.kube.meta import API, Condition, Object, ResourceList, Wire, WireQuantity

# ruff: noqa: D101 - the API reference documents its own structs


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralSource(Wire, frozen=True):
    """A claim is made for the volume, named after the pod and the volume; its template is not read."""


class ImageSource(Wire, frozen=True):
    reference: str = ""


class GCEDisk(Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class AzureDisk(Wire, frozen=True):
    """An absent `kind` is Managed."""

    disk_uri: str = field(name="diskURI", default="")
    kind: str | None = None


class CinderDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class PortworxDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class ISCSIDisk(Wire, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBDImage(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class Volume(Wire, frozen=True):
    """Other kinds of volume are available on every node, and are not read."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: ImageSource | None = None
    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    portworx_volume: PortworxDisk | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None


# ruff: noqa: D101 - the API reference documents its own structs


_ABSENT: Final = Raw()


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


class ContainerPort(Wire, frozen=True):
    """`host_port` 0 is none; an empty `host_ip` is every address."""

    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"
    container_port: int = 0


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
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
    """Affinity to other pods is kept as raw JSON (of `pod_affinity.PodAffinity`), empty where absent."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Raw = Raw()
    pod_anti_affinity: Raw = Raw()

    def __post_init__(self) -> None:
        """Copy what is raw: as decoded, it keeps the whole list alive."""
        if bytes(self.pod_affinity):
            force_setattr(self, "pod_affinity", self.pod_affinity.copy())
        if bytes(self.pod_anti_affinity):
            force_setattr(self, "pod_anti_affinity", self.pod_anti_affinity.copy())


class Toleration(Wire, frozen=True):
    """`operator` empty means Equal; an empty effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class PodResourceClaim(Wire, frozen=True):
    """A claim for devices (dynamic resource allocation); what it refers to is not read."""

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
    topology_spread_constraints: Raw = _ABSENT
    """A list of `pod_affinity.TopologySpreadConstraint`, as raw JSON."""
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    preemption_policy: str = "PreemptLowerPriority"
    host_network: bool = False
    hostname: str = ""

    def __post_init__(self) -> None:
        """Copy what is raw: as decoded, it keeps the whole list alive."""
        if self.topology_spread_constraints is not _ABSENT:
            force_setattr(self, "topology_spread_constraints", self.topology_spread_constraints.copy())


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


_MOST_SHARED: Final = 4096
_known: Final[dict[tuple[tuple[str, WireQuantity], ...], ResourceRequirements]] = {}


def _shared(resources: ResourceRequirements) -> ResourceRequirements:
    key = (*resources.requests.items(), ("", ""), *resources.limits.items())
    if len(_known) > _MOST_SHARED:
        _known.clear()
    return _known.setdefault(key, resources)


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    container_id: str = field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    """As the container runs; other than in the spec while it is resized."""
    allocated_resources: ResourceList | None = None
    """As the node has admitted it."""

    def __post_init__(self) -> None:
        """Share equal amounts: all replicas say the same."""
        if self.resources is not None:
            force_setattr(self, "resources", _shared(self.resources))
        if self.allocated_resources is not None:
            amounts = _shared(ResourceRequirements(self.allocated_resources)).requests
            force_setattr(self, "allocated_resources", amounts)


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
    resources: ResourceRequirements | None = None
    """Pod-level resources, as of ContainerStatus."""
    allocated_resources: ResourceList | None = None


class Pod(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Pod", "pods", namespaced=True)
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Whether all containers have ended and will not restart."""
        return self.status.phase in {"Succeeded", "Failed"}

    @classmethod
    def essentials(cls, tree: Any) -> dict[str, Any] | None:
        """Return what a pod occupies on the node to which it is bound."""
        metadata, spec = tree["metadata"], tree["spec"]
        if not spec.get("nodeName"):
            return None
        meta = {key: metadata[key] for key in _IDENTITY & metadata.keys()}
        texts = {key: _texts(metadata.get(key)) for key in ("labels", "annotations")}
        kept = {key: spec[key] for key in _OCCUPIED & spec.keys()}
        lists = {
            key: [_occupied(one) for one in spec.get(key) or ()] for key in ("containers", "initContainers")
        }
        status = tree.get("status")
        phase = status.get("phase") if isinstance(status, dict) else None
        return {"metadata": meta | texts, "spec": kept | lists, "status": {"phase": phase}}


_IDENTITY: Final = {"name", "namespace", "uid", "resourceVersion", "deletionTimestamp"}
_OCCUPIED: Final = {"nodeName", "overhead", "resources", "priority"}


def _occupied(container: Any) -> dict[str, Any]:
    return {key: container[key] for key in {"name", "resources", "restartPolicy"} & container.keys()}


def _texts(members: Any) -> dict[str, str]:
    if not isinstance(members, dict):
        return {}
    return {key: text for key, text in members.items() if isinstance(text, str)}
