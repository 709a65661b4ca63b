"""A pod's next steps: containers due to start or stop, its phase, and its containers' records as runs change.

Init containers run one by one; a sidecar (restartable init container, KEP-753) counts as initialized once it
has started, outlives the ordinary containers and stops after them, in reverse order.

Restarts follow the kubelet (`kuberuntime_manager.go`, `client-go/util/flowcontrol/backoff.go`): the first is
immediate, the next 10 s after the end of the run, doubling up to 300 s; a run of ten minutes resets it.

Reasons and messages of the status are the kubelet's, because tools and people search for them. There are no
probes: a container is started and ready as soon as it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from corelane import durations
from corelane.agent.allocation.cpu_moves import lost, unconfirmed
from corelane.agent.allocation.events import ContainerRun
from corelane.agent.allocation.records import RunCPUs, StatusReason
from corelane.cpuset import CPUSet, named
from corelane.embedded.pods.records import (
    INIT_KINDS,
    ConditionTransition,
    ContainerExit,
    ContainerPlan,
    ContainerProgress,
    ContainerStage,
    PastRuns,
    PodPlan,
    PodRecord,
    RestartBackoff,
    RestartPolicy,
    container_records,
)
from corelane.kube import keys
from corelane.kube.meta import rfc3339
from corelane.workload.request import ContainerKind

DEADLINE_EXCEEDED: Final = StatusReason(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)
LOST: Final = StatusReason(
    "ContainerStatusUnknown", "The container could not be located when the pod was looked for"
)
LOST_CODE: Final = 137
_INITIALIZED: Final = "status lost; complete, since containers that start after it were started"
_FIRST_DELAY: Final = 10.0
_LONGEST_DELAY: Final = 300.0
_MOST_NAMED: Final = 3
_MAIN_KINDS: Final = (ContainerKind.INIT, ContainerKind.APP)
CREATING: Final = "ContainerCreating"
"""Reason of a container that is about to start, of which nothing else is known."""

# -- decisions about a pod


def will_restart(pod: PodRecord, container: ContainerProgress) -> bool:
    """Whether an ended container is to run again."""
    return container.ended is not None and should_restart(
        pod.plan.restart_policy, container.kind, container.ended
    )


def startable(pod: PodRecord, container: ContainerProgress) -> bool:
    """Whether the container needs a process, regardless of its turn and its back-off."""
    if container.stage is ContainerStage.WAITING:
        return True
    return container.stage is ContainerStage.EXITED and will_restart(pod, container)


def initialization_failed(pod: PodRecord) -> bool:
    """Whether an init container failed and will not be restarted."""
    return any(
        container.stage is ContainerStage.EXITED
        and not container.succeeded
        and not will_restart(pod, container)
        for container in pod.of(ContainerKind.INIT)
    )


def is_ending(pod: PodRecord) -> bool:
    """Whether no container of the pod is to be started any more."""
    return (
        pod.termination is not None
        or initialization_failed(pod)
        or all(
            container.stage is ContainerStage.EXITED and not will_restart(pod, container)
            for container in pod.of(ContainerKind.APP)
        )
    )


def exceeds_deadline(pod: PodRecord, now: float) -> bool:
    """Whether the pod has been on the node for longer than its `activeDeadlineSeconds`."""
    deadline = pod.plan.active_deadline
    return deadline is not None and now >= pod.active_since + deadline


def has_ended(pod: PodRecord) -> bool:
    """Whether the pod has ended and none of its processes is left."""
    return is_ending(pod) and not pod.live


def is_initialized(pod: PodRecord) -> bool:
    """Whether the init containers are complete, so that the ordinary ones may run."""
    return all(container.initialized for container in pod.of(*INIT_KINDS))


def due_to_start(pod: PodRecord) -> list[ContainerProgress]:
    """Return the containers whose turn it is to start, regardless of back-off."""
    if is_ending(pod):
        return []
    due: list[ContainerProgress] = []
    for container in pod.of(*INIT_KINDS):
        if not container.succeeded or container.kind is ContainerKind.SIDECAR:
            due += [container] if startable(pod, container) else []
        if not container.initialized:
            return due
    return due + [container for container in pod.of(ContainerKind.APP) if startable(pod, container)]


def due_to_stop(pod: PodRecord) -> list[ContainerProgress]:
    """Return the running containers to stop now: all but the sidecars, then those in reverse order."""
    main = [container for container in pod.of(*_MAIN_KINDS) if container.live]
    sidecars = [container for container in pod.of(ContainerKind.SIDECAR) if container.live]
    return [record for record in main or sidecars[-1:] if record.stage is ContainerStage.RUNNING]


def phase(pod: PodRecord) -> str:
    """Return the pod's phase as the kubelet computes it (`kubelet_pods.go`, getPhase)."""
    terminated = pod.termination is not None and pod.termination.reason is not None
    if pod.rejected or (not pod.live and (terminated or initialization_failed(pod))):
        return "Failed"
    apps = pod.of(ContainerKind.APP)
    if has_ended(pod):
        return "Succeeded" if apps and all(container.succeeded for container in apps) else "Failed"
    if not is_initialized(pod) or not all(container.ran for container in apps):
        return "Pending"
    return "Running"


def needs_ticks(pod: PodRecord, now: float) -> bool:
    """Whether passing time alone may change the pod's next step; errs on the side of true."""
    if pod.finished:
        return False
    return pod.plan.active_deadline is not None or any(
        record.stage is not ContainerStage.RUNNING or now < record.retry_at
        for record in pod.containers.values()
        if not (record.kind is ContainerKind.INIT and record.succeeded)
    )


# -- restarts


def should_restart(policy: RestartPolicy, kind: ContainerKind, ended: ContainerExit) -> bool:
    """Whether a container that ended like this runs again while its pod continues."""
    if kind is ContainerKind.SIDECAR:
        return True
    if kind is ContainerKind.INIT:
        return not ended.succeeded_as(kind) and policy is not RestartPolicy.NEVER
    if policy is RestartPolicy.ON_FAILURE:
        return ended.exit_code != 0
    return policy is RestartPolicy.ALWAYS


def restart_time(backoff: RestartBackoff | None, exited_at: float) -> float:
    """Return the earliest time of the next start after that exit (both monotonic); 0 for immediately."""
    if backoff is None or _is_reset(backoff, exited_at):
        return 0.0
    return exited_at + backoff.delay


def raised_backoff(backoff: RestartBackoff | None, exited_at: float, now: float) -> RestartBackoff:
    """Return the back-off after a restart at the time `now`."""
    if backoff is None or _is_reset(backoff, exited_at):
        return RestartBackoff(_FIRST_DELAY, now)
    return RestartBackoff(min(2 * backoff.delay, _LONGEST_DELAY), now)


def _is_reset(backoff: RestartBackoff, exited_at: float) -> bool:
    return exited_at - backoff.raised_at > 2 * _LONGEST_DELAY


def in_backoff(container: ContainerProgress, now: float) -> bool:
    """Whether the back-off keeps an ended container from starting at the time `now`."""
    return container.ended is not None and now < restart_time(container.backoff, container.exited_at)


# -- a container's record as its runs start and end


def adopt_run(pod: PodRecord, run: ContainerRun, cpus: RunCPUs | None, at: float) -> ContainerProgress:
    """Record a run that an earlier agent started; runs of one container must come in their order.

    A run without a known end, as before a restart of the machine, counts as ended `at` this time.
    """
    container = pod.containers.setdefault(run.container, ContainerProgress(ContainerPlan(run.container)))
    container.last = container.ended or container.last
    container.id, container.attempt = run.id, run.attempt
    container.started_at = run.started_at
    container.stage = ContainerStage.RUNNING if run.live else ContainerStage.EXITED
    container.ended = None if run.live else exit_of(run, at)
    container.cpus = cpus
    return container


def exit_of(run: ContainerRun, at: float) -> ContainerExit:
    """Return how a run ended; `at` is its end where the runtime does not know it."""
    return ContainerExit(
        run.exit_code,
        run.finished_at or at,
        run.started_at,
        run.signal,
        run.reason,
        run.message,
        run.id,
        assumed=not run.finished_at,
    )


def note_start_ordered(container: ContainerProgress, cpus: RunCPUs) -> None:
    """Record that the next run is ordered, on these CPUs."""
    container.stage = ContainerStage.STARTING
    container.id = ""  # late answers about the run before must not match
    container.attempt += 1
    container.cpus = cpus


def note_started(container: ContainerProgress, run_id: str, started_at: float, now: float) -> str:
    """Record that the ordered run is up. Return the id of a run whose record is now obsolete, or ""."""
    obsolete = container.last.id if container.ended and container.last else ""
    if container.ended:
        container.backoff = raised_backoff(container.backoff, container.exited_at, now)
        container.last = container.ended
    container.ended = container.waiting = None
    container.id, container.started_at = run_id, started_at
    container.stage = ContainerStage.RUNNING
    return obsolete


def note_exit(container: ContainerProgress, ended: ContainerExit, now: float) -> None:
    """Record that the current run is over."""
    container.ended = ended
    container.exited_at = now
    container.stage = ContainerStage.EXITED
    container.cpus = None
    container.retry_at = 0.0


def note_start_failure(container: ContainerProgress, reason: StatusReason, retry_at: float) -> None:
    """Record that the start failed before there was a process."""
    container.stage = ContainerStage.EXITED if container.ended else ContainerStage.WAITING
    container.attempt -= 1
    container.cpus = None
    container.waiting = reason
    container.retry_at = retry_at


def note_waiting(container: ContainerProgress, cpus: CPUSet) -> bool:
    """Record that the start waits for other containers to leave these CPUs; return whether that is new."""
    reason = StatusReason("WaitingForCPUs", f"other containers are still leaving {named(cpus.mask)}")
    new = container.waiting != reason
    container.waiting = reason
    return new


def note_waiting_for_pods(pod: PodRecord, ending: Sequence[str], refusal: StatusReason) -> bool:
    """Record that the pod's admission waits for pods that are ending; return whether that is new."""
    names = ", ".join(sorted(ending)[:_MOST_NAMED]) + (" and others" if len(ending) > _MOST_NAMED else "")
    reason = StatusReason("WaitingForPods", f"{refusal.message}; waits for {names} to end")
    records = list(pod.containers.values())
    new = any(container.waiting is None or container.waiting.reason != reason.reason for container in records)
    for container in records:
        container.waiting = reason
    return new


def note_stop_failure(container: ContainerProgress, retry_at: float) -> None:
    """Record that the container could not be stopped and still runs."""
    container.stage = ContainerStage.RUNNING
    container.retry_at = retry_at


# -- a pod's record when the API server first lists it


def adopt_plan(pod: PodRecord, plan: PodPlan, at: float, now: float) -> None:
    """Take over a pod's plan; some of its containers may run already."""
    before = pod.containers
    pod.started_at = plan.started_at or at
    pod.active_since = now - max(0.0, at - pod.started_at)
    pod.conditions = dict(plan.conditions)
    pod.containers = container_records(plan.containers) | before
    for container in plan.containers:
        _adopt_past(pod.containers[container.name], container, plan.past.get(container.name), at)
    if any(container.id for container in pod.of(ContainerKind.APP)):
        _complete_initialization(pod, at)
    pod.finished = plan.ended and not pod.live


def _adopt_past(container: ContainerProgress, plan: ContainerPlan, past: PastRuns | None, at: float) -> None:
    """Record the container's plan, and by the API server what the runtime has lost of its earlier runs."""
    container.plan = plan
    if past is None:
        return
    if container.attempt < 0:
        container.attempt = past.restarts
        container.stage = ContainerStage.EXITED
        container.ended = past.ended or ContainerExit(LOST_CODE, at, reason=LOST.reason, message=LOST.message)
    elif container.ended and container.ended.assumed and past.ended and past.restarts == container.attempt:
        container.ended = replace(past.ended, id=container.id)


def _complete_initialization(pod: PodRecord, at: float) -> None:
    """Count all init containers as complete: an ordinary container was started after them.

    As the kubelet (`kuberuntime_container.go`, computeInitContainerActions): where their status is lost, they
    neither run a second time beside the running containers, nor end the pod.
    """
    for container in pod.of(ContainerKind.INIT):
        if container.live or container.succeeded:
            continue
        container.stage = ContainerStage.EXITED
        container.attempt = max(container.attempt, 0)
        finished_at = container.ended.finished_at if container.ended else at
        container.ended = ContainerExit(
            0, finished_at, container.started_at, message=_INITIALIZED, id=container.id
        )


# -- a pod's status for the API server


@dataclass(frozen=True, slots=True)
class PodHost:
    """The node's part of pod statuses: its addresses, which local processes share, and its runtime's name.

    `confirms`: a kernel can confirm where containers run (not so on simulated nodes).
    """

    host_ips: tuple[str, ...] = ()
    id_scheme: str = "corelane"
    confirms: bool = True


def pod_status(pod: PodRecord, at: float, now: float, host: PodHost) -> dict[str, Any]:
    """Return the whole status, and record in the pod when its conditions last changed; `now` is monotonic."""
    if pod.rejected:
        return {
            "phase": "Failed",
            "reason": pod.rejected.reason,
            "message": f"Pod was rejected: {pod.rejected.message}",
            "startTime": rfc3339(pod.started_at),
        }
    status: dict[str, Any] = {
        "phase": phase(pod),
        "startTime": rfc3339(pod.started_at),
        **_reason(pod),
        "conditions": _conditions(pod, at, host),
        "containerStatuses": [_container(pod, c, now, host) for c in pod.of(ContainerKind.APP)],
        **_addresses(host),
    }
    inits = [_container(pod, container, now, host) for container in pod.of(*INIT_KINDS)]
    return status | ({"initContainerStatuses": inits} if inits else {})


def _reason(pod: PodRecord) -> dict[str, str]:
    if pod.live or pod.termination is None or pod.termination.reason is None:
        return {}
    return {"reason": pod.termination.reason.reason, "message": pod.termination.reason.message}


def _addresses(host: PodHost) -> dict[str, Any]:
    if not host.host_ips:
        return {}
    ips = [{"ip": ip} for ip in host.host_ips]
    return {"hostIP": host.host_ips[0], "hostIPs": ips, "podIP": host.host_ips[0], "podIPs": ips}


def _conditions(pod: PodRecord, at: float, host: PodHost) -> list[dict[str, Any]]:
    unready = [c.name for c in pod.of(ContainerKind.SIDECAR, ContainerKind.APP) if not c.ready]
    incomplete = [c.name for c in pod.of(*INIT_KINDS) if not c.initialized]
    ready = _readiness(pod, unready)
    return [
        _condition(pod, at, "PodReadyToStartContainers", ""),
        _condition(pod, at, "Initialized", *_lacking("ContainersNotInitialized", "incomplete", incomplete)),
        _condition(pod, at, "Ready", *ready),
        _condition(pod, at, "ContainersReady", *ready),
        _condition(pod, at, "PodScheduled", ""),
        *([_condition(pod, at, keys.PINNED, *_unconfirmed(pod))] if host.confirms else []),
    ]


def _unconfirmed(pod: PodRecord) -> tuple[str, str]:
    """Return reason and message if a container's CPUs are lost or not confirmed, in the order of the spec."""
    return lost(pod.cpus) or unconfirmed(c.cpus for c in pod.containers.values() if c.cpus is not None)


def _readiness(pod: PodRecord, unready: list[str]) -> tuple[str, str]:
    current = phase(pod)
    if current == "Succeeded":
        return "PodCompleted", ""
    if current == "Failed":
        return "PodFailed", ""
    return _lacking("ContainersNotReady", "unready", unready)


def _lacking(reason: str, status: str, names: list[str]) -> tuple[str, str]:
    return (reason, f"containers with {status} status: [{' '.join(names)}]") if names else ("", "")


def _condition(pod: PodRecord, at: float, kind: str, reason: str, message: str = "") -> dict[str, Any]:
    """Return a condition: True without a reason, else False."""
    status = "False" if reason else "True"
    transition = pod.conditions.get(kind)
    if transition is None or transition.status != status:
        transition = pod.conditions[kind] = ConditionTransition(status, at)
    members = {"reason": reason, "message": message, "lastTransitionTime": rfc3339(transition.since)}
    # Strategic merge keeps absent members, so an outdated reason has to be removed by null.
    return {"type": kind, "status": status, **{key: value or None for key, value in members.items()}}


def _container(pod: PodRecord, container: ContainerProgress, now: float, host: PodHost) -> dict[str, Any]:
    waiting = _waiting(pod, container, now)
    shows_exit = container.stage in (ContainerStage.EXITED, ContainerStage.STARTING)
    ended = container.ended if shows_exit else None
    last = ended if waiting and ended else container.last
    status = {
        "name": container.name,
        "image": container.plan.image,
        "imageID": "",
        "ready": container.succeeded if container.kind is ContainerKind.INIT else container.ready,
        "started": container.ready,
        "restartCount": max(container.attempt, 0),
        "state": waiting or _state(container, ended, host),
        "lastState": {"terminated": _terminated(last, host)} if last else {},
    }
    return status | ({"containerID": _id(container.id, host)} if container.id else {})


def _state(container: ContainerProgress, ended: ContainerExit | None, host: PodHost) -> dict[str, Any]:
    if ended:
        return {"terminated": _terminated(ended, host)}
    return {"running": {"startedAt": rfc3339(container.started_at)}}


def _waiting(pod: PodRecord, container: ContainerProgress, now: float) -> dict[str, Any]:
    """Return the waiting state; empty if the container runs, or ended and does not wait for a restart."""
    if container.ready:
        return {}
    restarting = startable(pod, container) and not is_ending(pod)
    if container.ended and restarting and in_backoff(container, now):
        return {"waiting": {"reason": "CrashLoopBackOff", "message": _back_off_message(pod, container)}}
    if container.ended and not (restarting and container.waiting):
        return {}
    if container.waiting:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    return {"waiting": {"reason": "PodInitializing" if pod.of(*INIT_KINDS) else CREATING}}


def _back_off_message(pod: PodRecord, container: ContainerProgress) -> str:
    """Return the kubelet's message for a container in back-off."""
    delay = durations.text(round(container.backoff.delay if container.backoff else 0))
    return f"back-off {delay} restarting failed container={container.name} pod={full_name(pod)}"


def full_name(pod: PodRecord) -> str:
    """Return a pod's name as in the kubelet's messages."""
    return f"{pod.plan.request.name}_{pod.plan.request.namespace}({pod.uid})"


def _terminated(ended: ContainerExit, host: PodHost) -> dict[str, Any]:
    members = {
        "signal": ended.signal,
        "message": ended.message,
        "startedAt": rfc3339(ended.started_at) if ended.started_at else None,
        "finishedAt": rfc3339(ended.finished_at),
        "containerID": _id(ended.id, host) if ended.id else None,
    }
    return {
        "exitCode": ended.exit_code,
        "reason": ended.status_reason,
        **{key: value for key, value in members.items() if value},
    }


def _id(container_id: str, host: PodHost) -> str:
    return f"{host.id_scheme}://{container_id}"
