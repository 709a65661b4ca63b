"""A pod's manifest as a node reads it, and the plan made from it for the state machine.

Local processes run as the agent's user, with its capabilities, on the machine's file system and in its
namespaces. A field that they cannot honour and the container depends on is a refusal, and so is a restriction
that would not hold: no pod runs with less protection than its manifest has. A field that the container can do
without, a permission or a preference without effect is a warning.

The manifest is kept with the records of the containers, for when the API server has lost the pod.
"""
# ruff: noqa: D101 - the API reference documents its own structs

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from corelane.agent.allocation.records import StatusReason
from corelane.agent.bound_pods import UNEXPECTED, cpu_record, pod_request, seconds, was_bound_by_corelane
from corelane.embedded.pods.records import (
    ConditionTransition,
    ContainerExit,
    ContainerPlan,
    PastRuns,
    PodPlan,
    RestartPolicy,
)
from corelane.kube import keys, translate
from corelane.kube.meta import ObjectMeta, Wire, rfc3339
from corelane.kube.pod import Container, ContainerStatus, Pod, PodSpec, PodStatus
from corelane.node.entries import Entry
from corelane.runtime.base import ContainerSpec
from corelane.workload.request import ContainerKind, PodRequest

Context = Mapping[str, Any]
"""A `securityContext`, of a pod or of a container; a field of both has the container's value."""

_PROFILES: Final = ("seccompProfile", "appArmorProfile")
_POD_WITHOUT_EFFECT: Final = (
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "fsGroup",
    "fsGroupChangePolicy",
    "seLinuxChangePolicy",
    "windowsOptions",
)
_REMEDY: Final = "remove it, or use a node with a container runtime"
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROBES: Final = ("liveness_probe", "readiness_probe", "startup_probe")
Tree = dict[str, Any]
Manifest = dict[str, Any]
_OPTIONAL: Final = (
    "volumes",
    "affinity",
    "topologySpreadConstraints",
    "resourceClaims",
    "serviceAccountName",
)
"""Fields of a spec that may refer to objects which are lost too; the containers run without them."""


def refusals(subject: str, own: Context | None, pods: Context | None) -> Iterator[StatusReason]:
    """Yield why a container would run with less protection than its security context says."""
    context = {**(pods or {}), **(own or {})}
    user, group = os.geteuid(), os.getegid()
    for name, ours, what in (("runAsUser", user, "user"), ("runAsGroup", group, "group")):
        if context.get(name) not in (None, ours):
            yield StatusReason(
                "UserUnsupported",
                f"{subject}: {name} {context[name]} is not supported; "
                f"local processes run as the agent's {what} {ours}",
            )
    if context.get("runAsNonRoot") and user == 0:
        yield StatusReason(
            "UserUnsupported",
            f"{subject}: runAsNonRoot is set, but the agent and its local processes run as root",
        )
    broken = list(_broken(context))
    if broken:
        yield StatusReason(
            "SecurityContextUnsupported",
            f"{subject}: securityContext {', '.join(broken)}: not enforced for local processes, which have "
            f"the rights of the agent's user {os.geteuid()}; {_REMEDY}",
        )


def _broken(context: Context) -> Iterator[str]:
    """Yield the restrictions that would not hold. An ordinary user's processes have no capabilities."""
    if context.get("readOnlyRootFilesystem"):
        yield "readOnlyRootFilesystem true"
    if context.get("allowPrivilegeEscalation") is False:
        yield "allowPrivilegeEscalation false"
    if (dropped := _capabilities(context, "drop")) and os.geteuid() == 0:
        yield f"capabilities.drop {' '.join(dropped)}"
    for name in _PROFILES:
        kind = (context.get(name) or {}).get("type", "Unconfined")
        if kind != "Unconfined":
            yield f"{name} {kind}"
    if context.get("seLinuxOptions"):
        yield "seLinuxOptions"


def pod_refusals(
    runtime_class: str | None, host_users: bool | None, context: Context | None
) -> Iterator[StatusReason]:
    """Yield the fields of a whole pod that local processes cannot keep."""
    if runtime_class:
        text = f"spec.runtimeClassName {runtime_class} is not supported: local processes have no runtime"
        yield StatusReason("RuntimeClassUnsupported", f"{text}; {_REMEDY}")
    if host_users is False:
        text = "spec.hostUsers false is not supported: local processes share the machine's user namespace"
        yield StatusReason("UserUnsupported", f"{text}; {_REMEDY}")
    if sysctls := [str(sysctl.get("name")) for sysctl in (context or {}).get("sysctls") or ()]:
        text = f"spec.securityContext.sysctls {' '.join(sysctls)}: not set for local processes, which share"
        yield StatusReason("SysctlsUnsupported", f"{text} the machine's; {_REMEDY}")


def without_effect(own: Context | None, pods: Context | None) -> Iterator[str]:
    """Yield the fields of a container's security context, and its pod's, that change nothing."""
    yield from (field for field in _POD_WITHOUT_EFFECT if (pods or {}).get(field) not in (None, []))
    context = own or {}
    if context.get("windowsOptions"):
        yield "windowsOptions"
    if os.geteuid() != 0:
        if context.get("privileged"):
            yield "privileged"
        if added := _capabilities(context, "add"):
            yield f"capabilities.add {' '.join(added)}"


def _capabilities(context: Context, change: str) -> list[str]:
    return [str(name) for name in (context.get("capabilities") or {}).get(change) or ()]


class NameRef(Wire, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFromSource(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: NameRef | None = None
    secret_ref: NameRef | None = None


class VolumeMount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""


class RunContainer(Container, frozen=True):
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[Tree, ...] = ()
    liveness_probe: Tree | None = None
    readiness_probe: Tree | None = None
    startup_probe: Tree | None = None
    lifecycle: Tree | None = None
    security_context: Tree | None = None


class RunSpec(PodSpec, frozen=True):
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    ephemeral_containers: tuple[Tree, ...] = ()
    security_context: Tree | None = None
    service_account_name: str = ""
    runtime_class_name: str | None = None
    host_users: bool | None = None


class RunPod(Pod, frozen=True):
    spec: RunSpec = field(default_factory=RunSpec)

    def container(self, name: str) -> RunContainer:
        """Return the container of that name. Raises KeyError."""
        for container in (*self.spec.init_containers, *self.spec.containers):
            if container.name == name:
                return container
        raise KeyError(name)


def pod_plan(pod: RunPod, *, processes: bool, limits_memory: bool = True) -> PodPlan:
    """Return the plan of a pod.

    `processes` is false where containers are simulated, `limits_memory` where memory limits are not enforced.
    """
    containers = tuple(_containers(pod))
    request, refusal = pod_request(pod)
    policy = RestartPolicy(pod.spec.restart_policy) if _policy_is_known(pod) else RestartPolicy.NEVER
    if refusal is None and not _policy_is_known(pod):
        text = f"spec.restartPolicy: {pod.spec.restart_policy!r} is unknown; use Always, OnFailure or Never"
        refusal = StatusReason(UNEXPECTED, text)
    if processes and refusal is None:
        refusal = next(_refusals(pod), None)
    spec, meta = pod.spec, pod.metadata
    deadline = spec.active_deadline_seconds
    return PodPlan(
        request=request,
        containers=tuple(
            ContainerPlan(container.name, kind, container.image) for container, kind in containers
        ),
        restart_policy=policy,
        grace=float(spec.termination_grace_period_seconds),
        active_deadline=None if deadline is None else float(deadline),
        deletion_grace=_deletion_grace(meta),
        created_at=seconds(meta.creation_timestamp),
        started_at=seconds(pod.status.start_time) or None,
        ended=pod.ended,
        refusal=refusal,
        warnings=tuple(_warnings(pod, request, limits_memory=limits_memory)) if processes else (),
        bound_by_corelane=was_bound_by_corelane(pod),
        record=cpu_record(pod),
        past=_past(pod),
        conditions={
            condition.type: ConditionTransition(condition.status, seconds(condition.last_transition_time))
            for condition in pod.status.conditions
            if condition.last_transition_time
        },
    )


def plans_alike(old: RunPod, new: RunPod) -> bool:
    """Whether two states of a pod lead to the same plan, but for what its node itself published of it.

    That is: past runs, conditions and the time of the start, which matter where a pod is seen first.
    """
    version = new.metadata.resource_version
    return (
        old.spec == new.spec
        and replace(old.metadata, resource_version=version) == new.metadata
        and old.ended == new.ended
        and old.status.qos_class == new.status.qos_class
        and was_bound_by_corelane(old) == was_bound_by_corelane(new)
        and translate.resized(old) == translate.resized(new)
    )


def _policy_is_known(pod: RunPod) -> bool:
    return pod.spec.restart_policy in set(RestartPolicy)


def _containers(pod: RunPod) -> Iterator[tuple[RunContainer, ContainerKind]]:
    for container in pod.spec.init_containers:
        sidecar = container.restart_policy == "Always"
        yield container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT
    for container in pod.spec.containers:
        yield container, ContainerKind.APP


def _deletion_grace(meta: ObjectMeta) -> float | None:
    if not meta.deletion_timestamp:
        return None
    return float(meta.deletion_grace_period_seconds or 0)


def _past(pod: RunPod) -> dict[str, PastRuns]:
    """Return the containers that ran before, by the pod's status."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        status.name: PastRuns(status.restart_count, _last_exit(status))
        for status in statuses
        if status.state.running or status.state.terminated or status.last_state.terminated
    }


def _last_exit(status: ContainerStatus) -> ContainerExit | None:
    terminated = status.state.terminated or status.last_state.terminated
    if status.state.running or not terminated:
        return None
    return ContainerExit(
        terminated.exit_code,
        seconds(terminated.finished_at),
        seconds(terminated.started_at),
        terminated.signal,
        reason=terminated.reason,
        message=terminated.message,
    )


def _refusals(pod: RunPod) -> Iterator[StatusReason]:
    """Yield why the pod would not work as local processes."""
    if pod.spec.resource_claims:
        yield StatusReason(
            "ResourceClaimsUnsupported",
            "spec.resourceClaims is not supported: corelane does not allocate devices by claim",
        )
    spec = pod.spec
    yield from pod_refusals(spec.runtime_class_name, spec.host_users, spec.security_context)
    for container, _ in _containers(pod):
        yield from _refusals_of(pod, container)


def _refusals_of(pod: RunPod, container: RunContainer) -> Iterator[StatusReason]:
    subject = f"container {container.name}"
    if not (*container.command, *container.args):
        yield StatusReason(
            "CommandMissing",
            f"{subject}: command is not set, nor args; containers run as local processes without images, "
            f"so set `command` to a program of this machine",
        )
    for mount in container.volume_mounts:
        if mount.mount_path.rstrip("/") != _SERVICE_ACCOUNT:
            yield StatusReason(
                "VolumesUnsupported",
                f"{subject}: volume {mount.name} cannot be mounted at {mount.mount_path}; containers run as "
                f"local processes without mounts, so use a path of this machine",
            )
    if container.volume_devices:
        yield StatusReason(
            "VolumesUnsupported", f"{subject}: volumeDevices are not supported for local processes"
        )
    if any(source.secret_ref for source in container.env_from) or any(
        var.value_from and var.value_from.secret_key_ref for var in container.env
    ):
        yield StatusReason(
            "SecretsUnsupported",
            f"{subject}: environment variables from secrets are not supported; use a config map",
        )
    yield from refusals(subject, container.security_context, pod.spec.security_context)


def _warnings(pod: RunPod, request: PodRequest, *, limits_memory: bool) -> Iterator[StatusReason]:
    """Yield the fields that are ignored, without which the pod can work."""
    containers = [container for container, _ in _containers(pod)]
    if any(container.image for container in containers):
        yield StatusReason("ImageIgnored", "image ignored: containers run as local processes on this node")
    probed = [c.name for c in containers if any(getattr(c, probe) for probe in _PROBES)]
    if probed:
        yield StatusReason(
            "ProbesIgnored",
            f"probes ignored for containers {', '.join(probed)}: a container is ready as soon as it runs",
        )
    hooked = [c.name for c in containers if c.lifecycle]
    if hooked:
        yield StatusReason("HooksIgnored", f"lifecycle hooks ignored for containers {', '.join(hooked)}")
    if not limits_memory and (request.memory_limit or any(map(request.memory_limit_of, request.containers))):
        yield StatusReason(
            "MemoryLimitsIgnored",
            f"memory limits are not enforced on this node; its annotation {keys.NOTICE} has the reason",
        )
    contexts = [container.security_context for container in containers]
    own = pod.spec.security_context
    if fields := {field: None for context in contexts for field in without_effect(context, own)}:
        yield StatusReason(
            "SecurityContextIgnored",
            f"securityContext {', '.join(fields)} ignored: local processes have the agent's user and groups",
        )
    if pod.spec.ephemeral_containers:
        yield StatusReason("EphemeralContainersIgnored", "ephemeral containers are ignored")


def encode_manifest(pod: RunPod) -> str:
    """Return a pod's manifest as JSON: its metadata and spec as far as an agent reads them."""
    metadata = replace(pod.metadata, resource_version="", generation=0, finalizers=())
    return msgspec.json.encode(replace(pod, metadata=metadata, status=PodStatus())).decode()


def recreated_manifest(
    specs: Sequence[ContainerSpec], entries: Iterable[Entry] = (), *, node: str, created_at: float
) -> tuple[Manifest, bool]:
    """Return the manifest of a pod on `node` from the records of its containers, and whether it is whole.

    The latest recorded manifest serves; without one, the manifest has the containers that were recorded, with
    command, environment and CPU request, as the ledger's `entries` name their kind. `created_at` (Unix
    seconds) is used where no record has the time.
    """
    manifest = _recorded(specs)
    whole = manifest is not None
    manifest = manifest or _rebuilt(specs, {entry.container: entry for entry in entries})
    manifest |= {"apiVersion": "v1", "kind": "Pod"}
    manifest["metadata"].setdefault("creationTimestamp", rfc3339(created_at))
    manifest["spec"]["nodeName"] = node
    return manifest, whole


def without_references(manifest: Manifest) -> Manifest:
    """Return the manifest without the fields that refer to other objects, which may be lost as well."""
    spec = {name: value for name, value in manifest["spec"].items() if name not in _OPTIONAL}
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "ownerReferences"}
    return {**manifest, "metadata": metadata, "spec": spec}


def _recorded(specs: Sequence[ContainerSpec]) -> Manifest | None:
    for spec in reversed(specs):
        try:
            manifest: Manifest = msgspec.json.decode(spec.manifest or "{}", type=Manifest)
        except (ValueError, RecursionError):
            continue
        meta, pod = manifest.get("metadata"), manifest.get("spec")
        if isinstance(meta, dict) and isinstance(pod, dict) and meta.get("uid") == spec.pod_uid:
            meta.pop("deletionTimestamp", None)
            meta.pop("deletionGracePeriodSeconds", None)
            return manifest
    return None


def _rebuilt(specs: Sequence[ContainerSpec], entries: Mapping[str, Entry]) -> Manifest:
    first = specs[0]
    latest = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.attempt)}
    kinds = {name: entries[name].kind if name in entries else ContainerKind.APP for name in latest}
    if ContainerKind.APP not in kinds.values():
        kinds = dict.fromkeys(kinds, ContainerKind.APP)  # a pod needs one
    inits = [
        _container(spec, kinds[name]) for name, spec in latest.items() if kinds[name] is not ContainerKind.APP
    ]
    apps = [
        _container(spec, kinds[name]) for name, spec in latest.items() if kinds[name] is ContainerKind.APP
    ]
    return {
        "metadata": {"namespace": first.namespace, "name": first.pod, "uid": first.pod_uid},
        "spec": {"containers": apps} | ({"initContainers": inits} if inits else {}),
    }


def _container(spec: ContainerSpec, kind: ContainerKind) -> Manifest:
    milli = {"cpu": f"{spec.cpu_shares_milli}m"} if spec.cpu_shares_milli else {}
    memory = {"memory": str(spec.memory_limit)} if spec.memory_limit else {}
    container: Manifest = {
        "name": spec.name,
        "image": "unknown",
        "command": [part.replace("$", "$$") for part in spec.command],
        "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in spec.env],
    }
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    limits = (milli if spec.quota_us else {}) | memory
    resources = ({"requests": milli} if milli else {}) | ({"limits": limits} if limits else {})
    if resources:
        container["resources"] = resources
    if kind is ContainerKind.SIDECAR:
        container["restartPolicy"] = "Always"
    return container
