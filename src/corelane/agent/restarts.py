"""Whether and when a container that ended is started again: restart policies and the crash-loop back-off.

The rules are the kubelet's (`kuberuntime_manager.go`, `client-go/util/flowcontrol/backoff.go`): the first
restart comes at once, the next ones 10 s after the end of the run, doubling up to 300 s; a run of ten
minutes clears the record.
"""

from typing import Final

from corelane.agent.pods import Backoff, Container, Ended, RestartPolicy
from corelane.workload import ContainerKind

INITIAL: Final = 10.0
LONGEST: Final = 300.0
FORGOTTEN_AFTER: Final = 2 * LONGEST


def again(policy: RestartPolicy, kind: ContainerKind, ended: Ended) -> bool:
    """Whether a container that ended like this is to run again, as long as its pod goes on."""
    if kind is ContainerKind.SIDECAR:
        return True
    if kind is ContainerKind.INIT:
        return ended.exit_code != 0 and policy is not RestartPolicy.NEVER
    if policy is RestartPolicy.ON_FAILURE:
        return ended.exit_code != 0
    return policy is RestartPolicy.ALWAYS


def ready_at(backoff: Backoff | None, ended: Ended) -> float:
    """The time from which on it may be started again; 0 for at once."""
    if backoff is None or ended.finished_at - backoff.raised_at > FORGOTTEN_AFTER:
        return 0.0
    return ended.finished_at + backoff.delay


def raised(backoff: Backoff | None, ended: Ended, at: float) -> Backoff:
    """The record to keep when it is started again at the time `at`."""
    if backoff is None or ended.finished_at - backoff.raised_at > FORGOTTEN_AFTER:
        return Backoff(INITIAL, at)
    return Backoff(min(2 * backoff.delay, LONGEST), at)


def waits(container: Container, at: float) -> bool:
    """Whether the back-off keeps an ended container from starting at the time `at`."""
    return container.ended is not None and at < ready_at(container.backoff, container.ended)
