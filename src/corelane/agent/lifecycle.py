"""What a pod needs next: which containers are due to start or to stop, whether it is over, its phase.

Pure functions over `pods.Pod`. Init containers run one by one; a sidecar (restartable init container,
KEP-753) counts as initialized once it has started, outlives the ordinary containers and is stopped after
them, last one first.
"""

from typing import Final

from corelane.agent import restarts
from corelane.agent.pods import Container, Pod, Reason, Stage
from corelane.workload import ContainerKind

DEADLINE: Final = Reason("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")

_INITS = (ContainerKind.INIT, ContainerKind.SIDECAR)
_MAIN = (ContainerKind.INIT, ContainerKind.APP)


def will_restart(pod: Pod, container: Container) -> bool:
    """Whether an ended container is to run again."""
    return container.ended is not None and restarts.again(
        pod.plan.restart_policy, container.kind, container.ended
    )


def startable(pod: Pod, container: Container) -> bool:
    """Whether it has no process and should get one, its turn and the back-off apart."""
    if container.stage is Stage.WAITING:
        return True
    return container.stage is Stage.EXITED and will_restart(pod, container)


def initialization_failed(pod: Pod) -> bool:
    """Whether an init container failed for good."""
    return any(
        container.stage is Stage.EXITED and not container.succeeded and not will_restart(pod, container)
        for container in pod.of(ContainerKind.INIT)
    )


def apps_done(pod: Pod) -> bool:
    """Whether every ordinary container has ended for good."""
    return all(c.stage is Stage.EXITED and not will_restart(pod, c) for c in pod.of(ContainerKind.APP))


def ending(pod: Pod) -> bool:
    """Whether nothing of it is to be started any more."""
    return pod.doom is not None or initialization_failed(pod) or apps_done(pod)


def outlives_deadline(pod: Pod, at: float) -> bool:
    """Whether it has been on the node for longer than its `activeDeadlineSeconds`."""
    deadline = pod.plan.active_deadline
    return deadline is not None and at >= pod.started_at + deadline


def over(pod: Pod) -> bool:
    """Whether the pod has ended and none of its processes is left."""
    return ending(pod) and not pod.live


def due(pod: Pod) -> list[Container]:
    """The containers whose turn it is to start, the back-off apart."""
    if ending(pod):
        return []
    found: list[Container] = []
    for container in pod.of(*_INITS):
        done = container.ran if container.kind is ContainerKind.SIDECAR else container.succeeded
        if not container.succeeded or container.kind is ContainerKind.SIDECAR:
            found += [container] if startable(pod, container) else []
        if not done:
            return found
    return found + [container for container in pod.of(ContainerKind.APP) if startable(pod, container)]


def to_stop(pod: Pod) -> list[Container]:
    """The running containers to stop now: all but the sidecars first, then those, the last one first."""
    main = [container for container in pod.of(*_MAIN) if container.live]
    if main:
        return [container for container in main if container.stage is Stage.RUNNING]
    sidecars = [container for container in pod.of(ContainerKind.SIDECAR) if container.live]
    return [container for container in sidecars[-1:] if container.stage is Stage.RUNNING]


def initialized(pod: Pod) -> bool:
    """Whether the init containers are through, so that the ordinary ones may run."""
    return all(
        container.ran if container.kind is ContainerKind.SIDECAR else container.succeeded
        for container in pod.of(*_INITS)
    )


def phase(pod: Pod) -> str:
    """The pod's phase as the kubelet computes it (`kubelet_pods.go`, getPhase)."""
    doomed = pod.doom is not None and pod.doom.reason is not None
    if pod.rejected or (not pod.live and (doomed or initialization_failed(pod))):
        return "Failed"
    apps = pod.of(ContainerKind.APP)
    if over(pod):
        return "Succeeded" if apps and all(container.succeeded for container in apps) else "Failed"
    if not initialized(pod) or not all(container.ran for container in apps):
        return "Pending"
    return "Running"


def waits_for_time(pod: Pod, at: float) -> bool:
    """Whether the mere passing of time may change what it needs; rather too often yes than no."""
    if pod.over:
        return False
    unfinished = [one for one in pod.containers.values() if not _is_through(one)]
    return pod.plan.active_deadline is not None or any(
        one.stage is not Stage.RUNNING or one.drifted or at < one.retry_at for one in unfinished
    )


def _is_through(container: Container) -> bool:
    return container.kind is ContainerKind.INIT and container.succeeded
