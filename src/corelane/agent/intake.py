"""From a pod's manifest to the plan that the core works by, and what local processes cannot do for it.

What a container would miss and break over is a refusal; what it only does without is a warning.
"""

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from corelane.agent.manifest import RunContainer, RunPod, SecurityContext
from corelane.agent.pods import ContainerPlan, Ended, Past, PodPlan, Reason, RestartPolicy, Transition
from corelane.kube import translate
from corelane.kube.meta import ObjectMeta, condition
from corelane.kube.pod import ContainerStateTerminated, ContainerStatus
from corelane.kube.translate import TranslationError
from corelane.workload import ContainerKind, PodRequest, QOSClass

SCHEDULER: Final = "corelane-scheduler"
IMAGE_IGNORED: Final = "ImageIgnored"
_UNEXPECTED: Final = "UnexpectedAdmissionError"
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROBES: Final = ("liveness_probe", "readiness_probe", "startup_probe")


def plan(pod: RunPod, *, processes: bool) -> PodPlan:
    """What the core has to know of a pod; `processes` is false where containers are simulated."""
    containers = tuple(_containers(pod))
    asked, refusal = _ask(pod)
    policy = RestartPolicy(pod.spec.restart_policy) if _known_policy(pod) else RestartPolicy.NEVER
    if refusal is None and not _known_policy(pod):
        refusal = Reason(_UNEXPECTED, f"spec.restartPolicy: {pod.spec.restart_policy!r} is unknown")
    if processes and refusal is None:
        refusal = next(_refusals(pod), None)
    spec, meta = pod.spec, pod.metadata
    return PodPlan(
        request=asked,
        containers=tuple(ContainerPlan(one.name, kind, one.image) for one, kind in containers),
        restart_policy=policy,
        grace=float(spec.termination_grace_period_seconds),
        active_deadline=_optional_float(spec.active_deadline_seconds),
        deletion_grace=_deletion_grace(meta),
        created_at=seconds(meta.creation_timestamp),
        started_at=seconds(pod.status.start_time) or None,
        ended=pod.ended,
        refusal=refusal,
        warnings=tuple(_warnings(pod)) if processes else (),
        lane_bound=spec.scheduler_name == SCHEDULER and _was_bound(pod),
        past=_past(pod),
        conditions={
            one.type: Transition(one.status, seconds(one.last_transition_time))
            for one in pod.status.conditions
            if one.last_transition_time
        },
    )


def _was_bound(pod: RunPod) -> bool:
    """Whether a scheduler bound it; a pod that was created with a node's name was promised nothing."""
    scheduled = condition(pod.status.conditions, "PodScheduled")
    return scheduled is not None and scheduled.status == "True"


def _known_policy(pod: RunPod) -> bool:
    return pod.spec.restart_policy in set(RestartPolicy)


def seconds(timestamp: str) -> float:
    """Unix seconds of an RFC 3339 timestamp; 0 for none, or one that cannot be read."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except ValueError:
        return 0.0


def _ask(pod: RunPod) -> tuple[PodRequest, Reason | None]:
    """Its ask, and a refusal where something in it cannot be understood."""
    try:
        return translate.request(pod), None
    except TranslationError as error:
        return _rest_of_ask(pod), Reason(_UNEXPECTED, str(error))


def _rest_of_ask(pod: RunPod) -> PodRequest:
    """What is asked for beside broken metadata: who runs already must be able to go on; else nothing."""
    meta = pod.metadata
    try:
        return translate.request(replace(pod, metadata=replace(meta, annotations={}, labels={})))
    except TranslationError:
        return PodRequest(meta.uid, meta.namespace, meta.name, QOSClass.BEST_EFFORT, ())


def _containers(pod: RunPod) -> Iterator[tuple[RunContainer, ContainerKind]]:
    for container in pod.spec.init_containers:
        sidecar = container.restart_policy == "Always"
        yield container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT
    for container in pod.spec.containers:
        yield container, ContainerKind.APP


def _optional_float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _deletion_grace(meta: ObjectMeta) -> float | None:
    if not meta.deletion_timestamp:
        return None
    return float(meta.deletion_grace_period_seconds or 0)


def _past(pod: RunPod) -> dict[str, Past]:
    """Containers that have run before, according to the API server."""
    listed = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        status.name: Past(status.restart_count, _last_end(status)) for status in listed if _has_run(status)
    }


def _has_run(status: ContainerStatus) -> bool:
    return bool(status.state.running or status.state.terminated or status.last_state.terminated)


def _last_end(status: ContainerStatus) -> Ended | None:
    if status.state.running:
        return None
    how = status.state.terminated or status.last_state.terminated
    return _ended(how) if how else None


def _ended(how: ContainerStateTerminated) -> Ended:
    return Ended(
        how.exit_code,
        seconds(how.finished_at),
        seconds(how.started_at),
        how.signal,
        reason=how.reason,
        message=how.message,
    )


def _refusals(pod: RunPod) -> Iterator[Reason]:
    """What local processes cannot give, so that the pod would not work."""
    if pod.spec.resource_claims:
        yield Reason("ResourceClaimsUnsupported", "spec.resourceClaims: corelane hands out no devices")
    for container, _ in _containers(pod):
        yield from _refusals_of(pod, container)


def _refusals_of(pod: RunPod, container: RunContainer) -> Iterator[Reason]:
    where = f"container {container.name}"
    if not container.command:
        yield Reason(
            "CommandMissing",
            f"{where} has no command: containers run here as local processes and images are ignored, so the "
            f"program has to be named in `command`",
        )
    for mount in container.volume_mounts:
        if mount.mount_path.rstrip("/") != _SERVICE_ACCOUNT:
            yield Reason(
                "VolumesUnsupported",
                f"{where} mounts volume {mount.name} at {mount.mount_path}: local processes see this "
                f"machine's own files, and nothing is mounted for them; use a path of this machine instead",
            )
    if container.volume_devices:
        yield Reason(
            "VolumesUnsupported", f"{where} has volumeDevices: no device is mapped for local processes"
        )
    if any(source.secret_ref for source in container.env_from) or any(
        var.value_from and var.value_from.secret_key_ref for var in container.env
    ):
        yield Reason(
            "SecretsUnsupported",
            f"{where} takes its environment from a secret, and secrets are not served: use a config map",
        )
    yield from _identity(where, container.security_context, pod.spec.security_context)


def _identity(where: str, own: SecurityContext | None, pods: SecurityContext | None) -> Iterator[Reason]:
    """Processes have the agent's user; a pod that insists on another one would get other rights."""
    me = os.geteuid()
    wanted = next((one.run_as_user for one in (own, pods) if one and one.run_as_user is not None), me)
    if wanted != me:
        yield Reason(
            "UserUnsupported",
            f"{where} wants to run as user {wanted}, but local processes run as the agent's user, {me}",
        )
    elif me == 0 and any(one and one.run_as_non_root for one in (own, pods)):
        yield Reason(
            "UserUnsupported", f"{where} has runAsNonRoot, but the agent and its processes run as root"
        )


def _warnings(pod: RunPod) -> Iterator[Reason]:
    """What is left out without breaking the pod."""
    containers = [container for container, _ in _containers(pod)]
    if any(container.image for container in containers):
        yield Reason(
            IMAGE_IGNORED, "containers run here as local processes: images are neither pulled nor used"
        )
    probed = [c.name for c in containers if any(getattr(c, probe) for probe in _PROBES)]
    if probed:
        yield Reason(
            "ProbesIgnored",
            f"probes are not run (containers {', '.join(probed)}): a container counts as ready once it runs",
        )
    hooked = [c.name for c in containers if c.lifecycle]
    if hooked:
        yield Reason("HooksIgnored", f"lifecycle hooks are not run (containers {', '.join(hooked)})")
    if pod.spec.ephemeral_containers:
        yield Reason("EphemeralContainersIgnored", "ephemeral containers are not run")
