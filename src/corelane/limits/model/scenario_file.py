"""Scenarios in files: a YAML file's values, read field by field; a mistake names field and value."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.limits.model import scenario_fields as fields
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    pod_limit,
)
from corelane.limits.model.scenario_fields import Fields, ScenarioError
from corelane.limits.model.switches import LATEST, Switches, for_kernel
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    EventServer,
    Open,
    Parallel,
    Spin,
    ThreadPoolServer,
    Workload,
)

__all__ = ["ScenarioError"]

MAX_SECONDS, MAX_CPUS = 3600.0, 1024


def read(value: object) -> Scenario:
    """A scenario from a YAML file's values. Raises ScenarioError."""
    top = Fields.of(value, "")
    name = top.take("name", fields.text, "scenario")
    scenario = Scenario(
        name=name,
        title=top.take("title", fields.text, name),
        machine=top.take("machine", lambda one: _machine(Fields.of(one, "machine"))),
        kernel=top.take("kernel", _kernel, LATEST),
        seconds=top.take("seconds", _seconds, 60.0),
        warmup_seconds=top.take("warmup", _seconds_or_none, 1.0),
        window_ms=top.take("window", lambda one: _window(Fields.of(one, "window")), (0.0, 200.0)),
        pods=top.list("pods", lambda one, path: _pod(Fields.of(one, path))),
        subject=top.take("subject", fields.text, ""),
        notes=top.take("notes", _notes, ()),
    )
    top.done("name title machine kernel seconds warmup window pods subject notes")
    return _checked(scenario)


def _checked(scenario: Scenario) -> Scenario:
    """Check what must hold between fields."""
    names = [pod.name for pod in scenario.pods]
    for i, pod in enumerate(scenario.pods):
        if pod.name in names[:i]:
            raise ScenarioError(f"pods[{i}].name: {pod.name!r} is there twice")
        inner = [one.name for one in pod.containers]
        for j, one in enumerate(pod.containers):
            path = f"pods[{i}].containers[{j}]"
            if one.name in inner[:j]:
                raise ScenarioError(f"{path}.name: {one.name!r} is there twice")
            if one.cpus is not None and not one.cpus < 1 << scenario.machine.cpus:
                raise ScenarioError(
                    f"{path}.cpus: the machine has CPUs 0 to {scenario.machine.cpus - 1} only"
                )
            _check_limit(one.limit, f"{path}.limit", scenario.kernel)
        _check_limit(pod.limit, f"pods[{i}].limit", scenario.kernel)
    if scenario.window_ms[0] >= scenario.seconds * 1000:
        raise ScenarioError(
            f"window.start: {scenario.window_ms[0]:g} ms is not before the end at {scenario.seconds:g} s"
        )
    first = f"{names[0]}/{scenario.pods[0].containers[0].name}"
    subject = scenario.subject or first
    try:
        scenario.container(subject)
    except ValueError as error:
        raise ScenarioError(f"subject: {error}") from None
    return replace(scenario, subject=subject)


def _check_limit(limit: CFSLimit | None, path: str, kernel: Switches) -> None:
    try:
        if limit is not None:
            limit.granted.check(kernel)
    except ValueError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _machine(one: Fields) -> SimulatedMachine:
    hz = one.take("hz", lambda value: fields.count(value, 0, 1000), 250)
    machine = SimulatedMachine(
        cpus=one.take("cpus", lambda value: fields.count(value, 1, MAX_CPUS)),
        tick_ns=SECOND // hz if hz else 0,
        ticks=one.take("ticks", fields.choice("aligned", "random"), "aligned"),
        smt_speed=one.take("smtSpeed", _speed, None),
    )
    one.done("cpus hz ticks smtSpeed")
    return machine


def _kernel(value: Any) -> Switches:
    if not isinstance(value, Mapping):
        return _version(value)
    one = Fields.of(value, "kernel")
    base = one.take("version", _version, LATEST)
    flags = ("expiry", "burst", "clock_needs_tasks", "task_throttling", "eevdf")
    changes: dict[str, Any] = {
        name: one.take(_camel(name), fields.flag, getattr(base, name)) for name in flags
    }
    changes["order"] = one.take("order", fields.choice("head", "mixed", "tail"), base.order)
    changes["slice_ns"] = one.take("slice", fields.positive_time, base.slice_ns)
    one.done(" ".join(["version", "order", "slice", *map(_camel, flags)]))
    return replace(base, **changes)


def _version(value: Any) -> Switches:
    """YAML reads 5.10 without quotes as the number 5.1."""
    if isinstance(value, float) and str(value).endswith((".1", ".2")):
        raise ValueError(f'{value} may be {value} or {value}0: write it in quotes, as in "{value}0"')
    return for_kernel(str(value))


def _window(one: Fields) -> tuple[float, float]:
    start = one.take("start", fields.duration, 0)
    length = one.take("length", fields.positive_time, 200 * MS)
    one.done("start length")
    return start / MS, length / MS


def _pod(one: Fields) -> ScenarioPod:
    name = one.take("name", fields.name)
    containers = one.list("containers", lambda value, path: _container(Fields.of(value, path)))
    limit = _limit(one, pod_limit(containers))
    phase = _phase(one, limit)
    one.done("name containers limit period burst phase")
    return ScenarioPod(name, containers, limit, phase)


def _container(one: Fields) -> ScenarioContainer:
    limit = _limit(one, None)
    requested = limit.quota_ns * 1000 // limit.period_ns if limit else 0
    container = ScenarioContainer(
        name=one.take("name", fields.name),
        workloads=_workloads(one),
        request_milli=one.take("request", fields.milli, requested),
        limit=limit,
        cpus=one.take("cpus", _cpus, None),
        pinned=one.take("pinned", fields.flag, False),
        phase_ns=_phase(one, limit),
    )
    one.done("name request limit period burst cpus pinned phase workload workloads")
    return container


def _limit(one: Fields, default: CFSLimit | None) -> CFSLimit | None:
    """`limit` in CPUs, over a `period`, with a `burst`; a limit of `none` takes a pod's own away."""
    if one.values.get("limit") == "none":
        del one.values["limit"]
        default = None
    milli = one.take("limit", fields.milli, None)
    period = one.take("period", fields.positive_time, None)
    burst = one.take("burst", fields.duration, 0)
    if milli:
        period = period or 100 * MS
        return CFSLimit(milli * period // 1000, period, burst)
    for name, value in (("burst", burst), ("period", period)):
        if value:
            raise ScenarioError(f"{one.at(name)}: a {name} requires a limit")
    return default


def _phase(one: Fields, limit: CFSLimit | None) -> int | None:
    phase = one.take("phase", fields.duration, None)
    if phase is not None and limit is None:
        raise ScenarioError(f"{one.at('phase')}: a phase requires a limit")
    return phase


def _workloads(one: Fields) -> tuple[Workload, ...]:
    if "workload" in one.values and "workloads" not in one.values:
        return (_workload(Fields.of(one.values.pop("workload"), one.at("workload"))),)
    return one.list("workloads", lambda value, path: _workload(Fields.of(value, path)))


def _workload(one: Fields) -> Workload:
    kind = one.take("kind", fields.choice(*_KINDS))
    read_kind, known = _KINDS[kind]
    workload = read_kind(one)
    one.done(f"kind {known}")
    return workload


def _spin(one: Fields) -> Workload:
    return Spin(_threads(one))


def _bursts(one: Fields) -> Workload:
    every, pause = one.take("every", fields.duration, 0), one.take("pause", fields.duration, 0)
    if bool(every) == bool(pause):
        raise ScenarioError(
            f"{one.path}: give either every (from start to start) or pause (from end to start)"
        )
    return Bursts(
        one.take("run", _duration),
        every,
        pause,
        _threads(one, 1),
        one.take("start", fields.duration, 0),
    )


def _server(one: Fields) -> Workload:
    return ThreadPoolServer(
        one.take("service", _duration),
        _arrivals(one),
        _threads(one),
        one.take("network", fields.duration, 0),
    )


def _event_server(one: Fields) -> Workload:
    return EventServer(
        wake=one.take("wake", _duration, Duration(10 * US)),
        accept=one.take("accept", _duration, Duration(5 * US)),
        handle=one.take("handle", _duration),
        arrivals=_arrivals(one),
        threads=_threads(one),
        network_ns=one.take("network", fields.duration, 100 * US),
        send_ns=one.take("send", fields.duration, 100 * US),
        warm=one.take("warm", fields.part, 1.0),
    )


def _parallel(one: Fields) -> Workload:
    return Parallel(
        serial=one.take("serial", _duration, Duration(0)),
        work=one.take("work", _duration),
        regions=one.take("regions", fields.count, 1),
        arrivals=_arrivals(one),
        threads=_threads(one),
        spin_ns=one.take("spin", fields.duration, 1 * MS),
        imbalance=one.take("imbalance", fields.part, 0.1),
    )


_ARRIVALS = "rate batch clients think variation threads"
_KINDS: Final[dict[str, tuple[Callable[[Fields], Workload], str]]] = {
    "spin": (_spin, "threads"),
    "bursts": (_bursts, "run every pause start threads"),
    "server": (_server, f"service network {_ARRIVALS}"),
    "event-server": (_event_server, f"wake warm accept handle network send {_ARRIVALS}"),
    "parallel": (_parallel, f"serial work regions spin imbalance {_ARRIVALS}"),
}


def _threads(one: Fields, default: int | None = None) -> int | None:
    if one.values.get("threads") == "auto":
        del one.values["threads"]
        return None
    return one.take("threads", fields.count, default)


def _arrivals(one: Fields) -> Open | Closed:
    rate = one.take("rate", fields.number, None)
    clients = one.take("clients", fields.count, None)
    think = one.take("think", fields.duration, 0)
    if (rate is None) == (clients is None):
        raise ScenarioError(
            f"{one.path}: give either rate (requests per second) or clients (each waits for its answer)"
        )
    batch = one.take("batch", fields.count, 1)
    variation = one.take("variation", _variation, 0.0 if rate is None else 1.0)
    if clients is not None:
        if batch != 1:
            raise ScenarioError(f"{one.path}: batch is for rate; clients send one request each")
        return Closed(clients, think, variation)
    return Open(rate or 0.0, batch, variation)


def _duration(value: Any) -> Duration:
    """`5ms`, or `{mean: 5ms, sigma: 0.5}`."""
    if not isinstance(value, Mapping):
        return Duration(fields.positive_time(value))
    one = Fields.of(value, "")
    try:
        duration = Duration(one.take("mean", fields.positive_time), one.take("sigma", _sigma, 0.0))
        one.done("mean sigma")
    except ScenarioError as error:
        raise ValueError(str(error)) from None
    return duration


def _sigma(value: Any) -> float:
    """Beyond 4 a mean would be made of what hardly ever happens."""
    found = fields.number(value)
    if found > 4:
        raise ValueError(f"{fields.shown(value)} is not between 0 and 4")
    return found


def _variation(value: Any) -> float:
    """Beyond 10 hardly any interval is near the mean."""
    found = fields.number(value)
    if found > 10:
        raise ValueError(f"{fields.shown(value)} is not between 0 and 10")
    return found


def _speed(value: Any) -> int:
    if not 0.1 <= fields.number(value) <= 1:
        raise ValueError(
            f"{fields.shown(value)} is not between 0.1 and 1: how fast a CPU is beside a busy sibling"
        )
    return round(float(value) * 1000)


def _seconds(value: Any) -> float:
    found = value if isinstance(value, int | float) else fields.duration(value) / SECOND
    if isinstance(value, bool) or not 0 < found <= MAX_SECONDS:
        raise ValueError(f"{fields.shown(value)} is not a time from 0 to {MAX_SECONDS:g} seconds")
    return float(found)


def _seconds_or_none(value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else _seconds(value)


def _cpus(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{fields.shown(value)} is not a list of CPUs: write such as 0-3,8")
    found = CPUSet.parse(str(value))
    if not found:
        raise ValueError("the list of CPUs is empty")
    return found.mask


def _notes(value: Any) -> tuple[str, ...]:
    return tuple(map(fields.text, value)) if isinstance(value, list) else (fields.text(value),)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
