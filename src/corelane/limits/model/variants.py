"""A scenario changed at its subject: another limit or none, burst, period, fewer threads, own CPUs."""

from collections.abc import Callable
from dataclasses import replace

from corelane.limits.model import scenario_fields as fields
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, pod_limit
from corelane.limits.model.switches import for_kernel

Change = Callable[[Scenario, str], Scenario]


def vary(scenario: Scenario, text: str) -> Scenario:
    """The scenario with changes such as `limit=500m,threads=2` made one after the other.

    Raises ValueError that says what is wrong with which of them.
    """
    parts = [one.strip() for one in text.split(",") if one.strip()]
    if not parts:
        raise ValueError(f"variant {text!r}: changes nothing; there are {', '.join(KINDS)}")
    for part in parts:
        key, _, value = part.partition("=")
        if key not in KINDS:
            raise ValueError(f"variant {part!r}: there is no {key!r}; there are {', '.join(KINDS)}")
        try:
            scenario = KINDS[key](scenario, value)
        except ValueError as error:
            raise ValueError(f"variant {part!r}: {error}") from None
    _check(scenario, text)
    return scenario


def _check(scenario: Scenario, text: str) -> None:
    """Only at the end: `burst=10ms,kernel=6.6` may go by way of a kernel without burst."""
    for pod in scenario.pods:
        for limit in (pod.limit, *(one.limit for one in pod.containers)):
            try:
                if limit is not None:
                    limit.granted.check(scenario.kernel)
            except ValueError as error:
                raise ValueError(f"variant {text!r}: {error}") from None


def _limit(scenario: Scenario, value: str) -> Scenario:
    milli = None if value == "none" else fields.milli(value)

    def change(one: ScenarioContainer) -> ScenarioContainer:
        old = one.limit or CFSLimit(1)
        wanted = milli and CFSLimit(milli * old.period_ns // 1000, old.period_ns, old.burst_ns)
        return replace(one, limit=wanted or None)

    return _subject(scenario, change)


def _no_limit(scenario: Scenario, value: str) -> Scenario:
    _nothing(value)
    return _limit(scenario, "none")


def _burst(scenario: Scenario, value: str) -> Scenario:
    burst = fields.duration(value)
    return _subject(scenario, lambda one: replace(one, limit=replace(_limited(one), burst_ns=burst)))


def _period(scenario: Scenario, value: str) -> Scenario:
    """The same part of a CPU, in shorter or longer portions."""
    period = fields.positive_time(value)

    def change(one: ScenarioContainer) -> ScenarioContainer:
        limit = _limited(one)
        quota = limit.quota_ns * period // limit.period_ns
        return replace(one, limit=CFSLimit(quota, period, min(limit.burst_ns, quota)))

    return _subject(scenario, change)


def _threads(scenario: Scenario, value: str) -> Scenario:
    count = fields.count(value)
    return _subject(
        scenario,
        lambda one: replace(one, workloads=tuple(replace(kind, threads=count) for kind in one.workloads)),
    )


def _exclusive(scenario: Scenario, value: str) -> Scenario:
    """Exclusive CPUs, the first ones, and no quota (as the kubelet's static policy does)."""
    count = fields.count(value)
    everything = (1 << scenario.machine.cpus) - 1
    if count > scenario.machine.cpus - (len(list(_paths(scenario))) > 1):
        raise ValueError(f"{scenario.machine.cpus} CPUs leave none for other containers; request fewer")
    own = (1 << count) - 1
    pods = tuple(
        replace(pod, containers=tuple(_beside(one, own, everything) for one in pod.containers))
        for pod in scenario.pods
    )
    return _subject(
        replace(scenario, pods=pods),
        lambda one: replace(one, cpus=own, limit=None, request_milli=1000 * count),
    )


def _kernel(scenario: Scenario, value: str) -> Scenario:
    return replace(scenario, kernel=for_kernel(value))


def _cpus(scenario: Scenario, value: str) -> Scenario:
    return replace(scenario, machine=replace(scenario.machine, cpus=fields.count(value)))


KINDS: dict[str, Change] = {
    "limit": _limit,
    "no-limit": _no_limit,
    "burst": _burst,
    "period": _period,
    "threads": _threads,
    "exclusive": _exclusive,
    "kernel": _kernel,
    "cpus": _cpus,
}


def _subject(scenario: Scenario, change: Callable[[ScenarioContainer], ScenarioContainer]) -> Scenario:
    """Change the subject, and its pod's limit with it where that follows from the containers'."""
    scenario.container(scenario.subject)
    changed = tuple(_changed(pod, scenario.subject, change) for pod in scenario.pods)
    return replace(scenario, pods=changed)


def _changed(
    pod: ScenarioPod, subject: str, change: Callable[[ScenarioContainer], ScenarioContainer]
) -> ScenarioPod:
    containers = tuple(change(one) if subject == f"{pod.name}/{one.name}" else one for one in pod.containers)
    follows = pod.limit is not None and pod.limit == pod_limit(pod.containers)
    return replace(pod, containers=containers, limit=pod_limit(containers) if follows else pod.limit)


def _beside(one: ScenarioContainer, own: int, everything: int) -> ScenarioContainer:
    rest = (everything if one.cpus is None else one.cpus) & ~own
    return replace(one, cpus=rest or everything & ~own)


def _paths(scenario: Scenario) -> list[str]:
    return [f"{pod.name}/{one.name}" for pod in scenario.pods for one in pod.containers]


def _limited(one: ScenarioContainer) -> CFSLimit:
    if one.limit is None:
        raise ValueError(f"{one.name} has no limit to change")
    return one.limit


def _nothing(value: str) -> None:
    if value:
        raise ValueError("takes no value")
