"""Scenarios of one's own: a YAML file's values, read field by field; a mistake names field and value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from corelane.cpuset import CPUSet
from corelane.limits.model import amounts
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.limit import Limit
from corelane.limits.model.scenario import Container, Machine, Pod, Scenario, pod_limit
from corelane.limits.model.switches import LATEST, Switches, for_kernel
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    EventServer,
    Open,
    Parallel,
    Server,
    Spin,
    Workload,
)

__all__ = ["ScenarioError", "read"]

T = TypeVar("T")
Read = Callable[[Any], T]
_REQUIRED: Final[Any] = object()
MAX_SECONDS, MAX_CPUS = 3600.0, 1024


class ScenarioError(ValueError):
    """A scenario cannot be read; the message names the field, the value and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """A mapping of which every field has to be taken. `path` is where it stands, such as `pods[0]`."""

    values: dict[str, Any]
    path: str

    @staticmethod
    def of(value: object, path: str) -> "_Fields":
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path or 'the file'}: expected fields with values, found {_shown(value)}")
        return _Fields({str(key): one for key, one in value.items()}, path)

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, read: Read[T], default: T = _REQUIRED) -> T:
        """The field, read; a default if it is missing or empty. Raises ScenarioError."""
        value = self.values.pop(name, None)
        if value is None:
            if default is _REQUIRED:
                raise ScenarioError(f"{self.at(name)} is missing")
            return default
        try:
            return read(value)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError(f"{self.at(name)}: {error}") from None

    def list(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        """A list of at least one. Raises ScenarioError."""
        values = self.take(name, lambda value: value)
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{self.at(name)}: expected a list, found {_shown(values)}")
        return tuple(read(value, f"{self.at(name)}[{i}]") for i, value in enumerate(values))

    def done(self, known: str) -> None:
        """Refuse what nobody has taken; `known` are the names there are."""
        for name in self.values:
            near = get_close_matches(name, known.split(), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known.split())}"
            raise ScenarioError(f"{self.at(name)}: there is no such field{hint}")


def read(value: object) -> Scenario:
    """A scenario from a YAML file's values. Raises ScenarioError."""
    top = _Fields.of(value, "")
    name = top.take("name", _text, "scenario")
    scenario = Scenario(
        name=name,
        title=top.take("title", _text, name),
        machine=top.take("machine", lambda one: _machine(_Fields.of(one, "machine"))),
        kernel=top.take("kernel", _kernel, LATEST),
        seconds=top.take("seconds", _seconds, 60.0),
        warmup_seconds=top.take("warmup", _seconds_or_none, 1.0),
        window_ms=top.take("window", lambda one: _window(_Fields.of(one, "window")), (0.0, 200.0)),
        pods=top.list("pods", lambda one, path: _pod(_Fields.of(one, path))),
        subject=top.take("subject", _text, ""),
        notes=top.take("notes", _notes, ()),
    )
    top.done("name title machine kernel seconds warmup window pods subject notes")
    return _checked(scenario)


def _checked(scenario: Scenario) -> Scenario:
    """What holds between fields."""
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
    first = f"{names[0]}/{scenario.pods[0].containers[0].name}"
    subject = scenario.subject or first
    try:
        scenario.container(subject)
    except ValueError as error:
        raise ScenarioError(f"subject: {error}") from None
    return replace(scenario, subject=subject)


def _check_limit(limit: Limit | None, path: str, kernel: Switches) -> None:
    try:
        if limit is not None:
            limit.check(kernel)
    except ValueError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _machine(one: _Fields) -> Machine:
    hz = one.take("hz", lambda value: amounts.count(value, 0, 1000), 250)
    machine = Machine(
        cpus=one.take("cpus", lambda value: amounts.count(value, 1, MAX_CPUS)),
        tick_ns=SECOND // hz if hz else 0,
        ticks=one.take("ticks", _choice("aligned", "random"), "aligned"),
        smt_speed=one.take("smtSpeed", _speed, None),
    )
    one.done("cpus hz ticks smtSpeed")
    return machine


def _kernel(value: Any) -> Switches:
    if not isinstance(value, Mapping):
        return for_kernel(str(value))
    one = _Fields.of(value, "kernel")
    base = one.take("version", lambda text: for_kernel(str(text)), LATEST)
    flags = ("expiry", "burst", "clock_needs_tasks", "task_throttling", "eevdf")
    changes: dict[str, Any] = {name: one.take(_camel(name), _flag, getattr(base, name)) for name in flags}
    changes["order"] = one.take("order", _choice("head", "mixed", "tail"), base.order)
    changes["slice_ns"] = one.take("slice", _positive_time, base.slice_ns)
    one.done(" ".join(["version", "order", "slice", *map(_camel, flags)]))
    return replace(base, **changes)


def _window(one: _Fields) -> tuple[float, float]:
    start = one.take("start", amounts.duration, 0)
    length = one.take("length", _positive_time, 200 * MS)
    one.done("start length")
    return start / MS, length / MS


def _pod(one: _Fields) -> Pod:
    name = one.take("name", _name)
    containers = one.list("containers", lambda value, path: _container(_Fields.of(value, path)))
    limit = _limit(one, pod_limit(containers))
    phase = one.take("phase", amounts.duration, None)
    one.done("name containers limit period burst phase")
    return Pod(name, containers, limit, phase)


def _container(one: _Fields) -> Container:
    limit = _limit(one, None)
    requested = limit.quota_ns * 1000 // limit.period_ns if limit else 0
    container = Container(
        name=one.take("name", _name),
        workloads=_workloads(one),
        request_milli=one.take("request", amounts.milli, requested),
        limit=limit,
        cpus=one.take("cpus", _cpus, None),
        pinned=one.take("pinned", _flag, False),
        phase_ns=one.take("phase", amounts.duration, None),
    )
    one.done("name request limit period burst cpus pinned phase workload workloads")
    return container


def _limit(one: _Fields, default: Limit | None) -> Limit | None:
    """`limit` in CPUs, over a `period`, with a `burst`; a limit of `none` takes a pod's own away."""
    if one.values.get("limit") == "none":
        del one.values["limit"]
        default = None
    milli = one.take("limit", amounts.milli, None)
    period = one.take("period", _positive_time, 100 * MS)
    burst = one.take("burst", amounts.duration, 0)
    if milli:
        return Limit(milli * period // 1000, period, burst)
    if burst:
        raise ScenarioError(f"{one.at('burst')}: without a limit there is nothing to save for a burst")
    return default


def _workloads(one: _Fields) -> tuple[Workload, ...]:
    if "workload" in one.values and "workloads" not in one.values:
        return (_workload(_Fields.of(one.values.pop("workload"), one.at("workload"))),)
    return one.list("workloads", lambda value, path: _workload(_Fields.of(value, path)))


def _workload(one: _Fields) -> Workload:
    kind = one.take("kind", _choice(*_KINDS))
    read_kind, known = _KINDS[kind]
    workload = read_kind(one)
    one.done(f"kind {known}")
    return workload


def _spin(one: _Fields) -> Workload:
    return Spin(_threads(one))


def _bursts(one: _Fields) -> Workload:
    every, pause = one.take("every", amounts.duration, 0), one.take("pause", amounts.duration, 0)
    if bool(every) == bool(pause):
        raise ScenarioError(
            f"{one.path}: give either every (from start to start) or pause (from end to start)"
        )
    return Bursts(
        one.take("run", _duration),
        every,
        pause,
        _threads(one, 1),
        one.take("start", amounts.duration, 0),
    )


def _server(one: _Fields) -> Workload:
    return Server(
        one.take("service", _duration),
        _arrivals(one),
        _threads(one),
        one.take("network", amounts.duration, 0),
    )


def _event_server(one: _Fields) -> Workload:
    return EventServer(
        wake=one.take("wake", _duration, Duration(10 * US)),
        accept=one.take("accept", _duration, Duration(5 * US)),
        handle=one.take("handle", _duration),
        arrivals=_arrivals(one),
        threads=_threads(one),
        network_ns=one.take("network", amounts.duration, 100 * US),
        send_ns=one.take("send", amounts.duration, 100 * US),
        warm=one.take("warm", _part, 1.0),
    )


def _parallel(one: _Fields) -> Workload:
    return Parallel(
        serial=one.take("serial", _duration, Duration(0)),
        work=one.take("work", _duration),
        regions=one.take("regions", amounts.count, 1),
        arrivals=_arrivals(one),
        threads=_threads(one),
        spin_ns=one.take("spin", amounts.duration, 1 * MS),
        imbalance=one.take("imbalance", _part, 0.1),
    )


_ARRIVALS = "rate clients think threads"
_KINDS: Final[dict[str, tuple[Callable[[_Fields], Workload], str]]] = {
    "spin": (_spin, "threads"),
    "bursts": (_bursts, "run every pause start threads"),
    "server": (_server, f"service network {_ARRIVALS}"),
    "event-server": (_event_server, f"wake warm accept handle network send {_ARRIVALS}"),
    "parallel": (_parallel, f"serial work regions spin imbalance {_ARRIVALS}"),
}


def _threads(one: _Fields, default: int | None = None) -> int | None:
    if one.values.get("threads") == "auto":
        del one.values["threads"]
        return None
    return one.take("threads", amounts.count, default)


def _arrivals(one: _Fields) -> Open | Closed:
    rate = one.take("rate", _number, None)
    clients = one.take("clients", amounts.count, None)
    think = one.take("think", amounts.duration, 0)
    if (rate is None) == (clients is None):
        raise ScenarioError(
            f"{one.path}: give either rate (requests per second, whatever happens) or clients (who wait)"
        )
    return Closed(clients, think) if clients is not None else Open(rate or 0.0)


def _duration(value: Any) -> Duration:
    """`5ms`, or `{mean: 5ms, sigma: 0.5}`."""
    if not isinstance(value, Mapping):
        return Duration(_positive_time(value))
    one = _Fields.of(value, "")
    try:
        duration = Duration(one.take("mean", _positive_time), one.take("sigma", _sigma, 0.0))
        one.done("mean sigma")
    except ScenarioError as error:
        raise ValueError(str(error)) from None
    return duration


def _positive_time(value: Any) -> int:
    found = amounts.duration(value)
    if not found:
        raise ValueError(f"{value!r} must be more than 0")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{_shown(value)} is not a number from 0 up")
    return float(value)


def _sigma(value: Any) -> float:
    """Beyond 4 a mean would be made of what hardly ever happens."""
    found = _number(value)
    if found > 4:
        raise ValueError(f"{_shown(value)} is not between 0 and 4")
    return found


def _part(value: Any) -> float:
    found = _number(value)
    if found > 1:
        raise ValueError(f"{_shown(value)} is not between 0 and 1")
    return found


def _speed(value: Any) -> int:
    if not 0.1 <= _number(value) <= 1:
        raise ValueError(f"{_shown(value)} is not between 0.1 and 1: how fast a CPU is beside a busy sibling")
    return round(float(value) * 1000)


def _seconds(value: Any) -> float:
    found = value if isinstance(value, int | float) else amounts.duration(value) / SECOND
    if isinstance(value, bool) or not 0 < found <= MAX_SECONDS:
        raise ValueError(f"{_shown(value)} is not a time from 0 to {MAX_SECONDS:g} seconds")
    return float(found)


def _seconds_or_none(value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else _seconds(value)


def _cpus(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no list of CPUs: write such as 0-3,8")
    found = CPUSet.parse(str(value))
    if not found:
        raise ValueError("the list of CPUs is empty")
    return found.mask


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no text")
    return str(value)


def _name(value: Any) -> str:
    found = _text(value)
    if not found or "/" in found or not found.isprintable():
        raise ValueError(f"{found!r} cannot name anything: use letters, digits, - and .")
    return found


def _notes(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else (_text(value),)


def _choice(*names: str) -> Read[Any]:
    def read_choice(value: Any) -> str:
        if str(value) not in names:
            raise ValueError(f"{_shown(value)} is none of {', '.join(names)}")
        return str(value)

    return read_choice


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
