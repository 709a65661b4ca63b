"""One container's record as its runs begin, are moved, are looked at and end."""

from enum import Enum, auto

from corelane.agent import restarts
from corelane.agent.messages import Run
from corelane.agent.pods import NO_CPUS, Container, ContainerPlan, Ended, Pod, Reason, Stage
from corelane.cpuset import CPUSet, named

LOST = Reason("ContainerStatusUnknown", "The container could not be located when the pod was looked for")
LOST_CODE = 137


class Verdict(Enum):
    """What /proc says of a container's CPUs: nothing, that it is held to them, or that it may leave them."""

    UNSEEN = auto()
    HELD = auto()
    ESCAPED = auto()


def adopt(pod: Pod, run: Run, granted: CPUSet, at: float) -> Container:
    """Take over a run that this agent did not start; runs of one container must come in their order.

    One that nobody saw end, as before a restart of the machine, counts as ended `at` this time. A live one
    that is not found on the CPUs it was granted will be told them again.
    """
    container = pod.containers.setdefault(run.container, Container(ContainerPlan(run.container)))
    container.last = container.ended or container.last
    container.id, container.attempt = run.id, run.attempt
    container.started_at = run.started_at
    container.stage = Stage.RUNNING if run.live else Stage.EXITED
    container.ended = None if run.live else end_of(run, at)
    container.seen = run.allowed
    container.applied = granted if run.allowed == granted else NO_CPUS
    container.unread = run.live
    return container


def end_of(run: Run, at: float) -> Ended:
    """How a run ended; `at` stands in where nobody knows when."""
    ended_at = run.finished_at or at
    return Ended(run.exit_code, ended_at, run.started_at, run.signal, run.reason, run.message, run.id)


def run_id(container: Container, *, previous: bool) -> str:
    """The run that is current, or ended last; or the one before it. Empty if there is none."""
    last = container.last.id if container.last else ""
    ended = container.ended.id if container.ended else ""
    return last if previous else container.id or ended


def lacks_cpus(container: Container, cpus: CPUSet) -> bool:
    """Others are still on the CPUs where it is to start; whether that is new."""
    reason = Reason("WaitingForCPUs", f"other containers are still leaving {named(cpus.mask)}")
    new = container.waiting != reason
    container.waiting = reason
    return new


def begin(container: Container, cpus: CPUSet) -> None:
    """Its next run is ordered, on these CPUs."""
    container.stage = Stage.STARTING
    container.id = ""  # answers about the run before must find nobody
    container.attempt += 1
    container.pending = cpus


def began(container: Container, run_id: str, started_at: float, at: float) -> str:
    """The run that was ordered is up. Returns the id of a run that is of no interest any more, or nothing."""
    outdated = container.last.id if container.ended and container.last else ""
    if container.ended:
        container.backoff = restarts.raised(container.backoff, container.ended, at)
        container.last = container.ended
    container.ended = container.waiting = None
    container.id, container.started_at = run_id, started_at
    container.stage = Stage.RUNNING
    container.applied, container.pending, container.seen = container.pending or NO_CPUS, None, NO_CPUS
    container.confirmed = container.drifted = container.drift_told = False
    container.troubles.clear()
    container.unread = container.narrowed = True
    return outdated


def ended(container: Container, how: Ended) -> None:
    """The current run is over."""
    container.ended = how
    container.stage = Stage.EXITED
    container.applied, container.pending, container.seen = NO_CPUS, None, NO_CPUS
    container.confirmed = container.drifted = container.unread = False
    container.retry_at = 0.0


def unstart(container: Container, reason: Reason, retry_at: float) -> None:
    """The start came to nothing, and no process was ever there."""
    container.stage = Stage.EXITED if container.ended else Stage.WAITING
    container.attempt -= 1
    container.pending = None
    container.waiting = reason
    container.retry_at = retry_at


def unstop(container: Container, retry_at: float) -> None:
    """It could not be ended, and runs on."""
    container.stage = Stage.RUNNING
    container.retry_at = retry_at


def move(container: Container, cpus: CPUSet) -> None:
    """These CPUs are ordered for it; the answer will bring a look at /proc."""
    container.pending = cpus
    container.drifted = container.unread = False


def applied(container: Container, cpus: CPUSet, allowed: CPUSet) -> None:
    """The runtime gave it `cpus`, and this is what /proc showed right after."""
    container.applied, container.pending, container.seen = cpus, None, allowed
    container.drifted = False
    container.narrowed = allowed != cpus


def failed(container: Container, retry_at: float) -> None:
    """The runtime could not move it: it may be here or there."""
    container.seen |= container.pending or NO_CPUS
    container.pending = None
    container.retry_at = retry_at


def observed(container: Container, allowed: CPUSet) -> None:
    """A look at /proc without a change.

    A process may give up CPUs of its own will, so a set that became narrower is applied again only once.
    """
    container.seen = allowed
    narrower = allowed < container.applied
    container.drifted = bool(allowed) and (
        not allowed <= container.applied or (narrower and not container.narrowed)
    )
    container.narrowed = narrower


def is_as_before(container: Container, allowed: CPUSet) -> bool:
    """Whether a look at /proc shows nothing new, and nothing that is still to be put right."""
    settled = container.confirmed if allowed else not container.confirmed
    return settled and allowed == container.seen and container.pending is None and not container.drifted


def is_news(container: Container, cpus: CPUSet, showed: object) -> bool:
    """Whether trouble with its CPUs was not reported yet: what cannot be put right is tried often."""
    known = (cpus, showed) in container.troubles
    container.troubles.add((cpus, showed))
    return not known


def judge(container: Container) -> Verdict:
    """What the last look means; notes whether the kernel confirms."""
    container.confirmed = bool(container.seen) and container.seen <= container.applied
    if not container.seen:
        return Verdict.UNSEEN
    if not container.confirmed:
        return Verdict.ESCAPED
    container.troubles.clear()
    return Verdict.HELD
