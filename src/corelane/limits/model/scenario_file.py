"""Scenarios in files: a YAML file's values, read field by field; a mistake names field and value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final, TypeVar

from corelane import durations
from corelane.cpuset import CPUSet
from corelane.limits.model.bandwidth import LATEST, CFSLimit, Switches, for_kernel
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    pod_limit,
)
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

# The fields of a scenario's YAML mappings, each taken once and read; a mistake names field and value.
#
# The readers of single values raise ValueError in words that go after a field's name.


T = TypeVar("T")
Read = Callable[[Any], T]
_REQUIRED: Final[Any] = object()


class ScenarioError(ValueError):
    """A scenario cannot be read; the message names the field, the value and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping of which every field has to be taken. `path` is where it stands, such as `pods[0]`."""

    values: dict[str, Any]
    path: str

    @staticmethod
    def of(value: object, path: str) -> "Fields":
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path or 'the file'}: expected fields with values, found {shown(value)}")
        return Fields({str(key): one for key, one in value.items()}, path)

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
            raise ScenarioError(f"{self.at(name)}: expected a list, found {shown(values)}")
        return tuple(read(value, f"{self.at(name)}[{i}]") for i, value in enumerate(values))

    def done(self, known: str) -> None:
        """Raise ScenarioError for fields not taken; `known` are the valid names."""
        for name in self.values:
            near = get_close_matches(name, known.split(), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known.split())}"
            raise ScenarioError(f"{self.at(name)}: there is no such field{hint}")


def positive_time(value: Any) -> int:
    """Nanoseconds, more than 0."""
    found = read_duration(value)
    if not found:
        raise ValueError(f"{value!r} must be more than 0")
    return found


def read_number(value: Any) -> float:
    """A number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{shown(value)} is not a number from 0 up")
    return float(value)


def read_part(value: Any) -> float:
    """A number from 0 to 1."""
    found = read_number(value)
    if found > 1:
        raise ValueError(f"{shown(value)} is not between 0 and 1")
    return found


def read_flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def read_text(value: Any) -> str:
    """Text, or a number as it is written."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not a text")
    return str(value)


def read_name(value: Any) -> str:
    """Text that can be one part of `pod/container`."""
    found = read_text(value)
    if not found or "/" in found or not found.isprintable():
        raise ValueError(f"{found!r} is not a name: use letters, digits, - and .")
    return found


def choice(*names: str) -> Read[Any]:
    """A reader of one of these names."""

    def read_choice(value: Any) -> str:
        if str(value) not in names:
            raise ValueError(f"{shown(value)} is not one of {', '.join(names)}")
        return str(value)

    return read_choice


def shown(value: object) -> str:
    """The value as it is quoted in an error, cut where it is long."""
    whole = repr(value)
    return whole if len(whole) <= 40 else whole[:37] + "…"


_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_CPU = re.compile(rf"({_NUMBER})(m?)")


def read_milli(value: object) -> int:
    """Thousandths of a CPU. Raises ValueError."""
    text = str(value).strip()
    found = None if isinstance(value, bool) else _CPU.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not an amount of CPU: write such as 500m or 1.5")
    amount = Fraction(found[1]) * (1 if found[2] else 1000)
    if amount.denominator != 1:
        raise ValueError(f"{text!r} is finer than a thousandth of a CPU")
    return int(amount)


def read_duration(value: object) -> int:
    """Nanoseconds; 0 needs no unit. Raises ValueError."""
    text = str(value).strip()
    try:
        length = durations.parse("0" if text == "0.0" else "".join(text.split()))
    except durations.DurationError:
        length = -1
    if length < 0:
        raise ValueError(f"{text!r} is not a time: write such as 250us, 5ms or 1s")
    return length


def read_count(value: object, least: int = 1, most: int = 4096) -> int:
    """A whole number. Raises ValueError."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


MAX_SECONDS, MAX_CPUS = 3600.0, 1024


def read(value: object) -> Scenario:
    """A scenario from a YAML file's values. Raises ScenarioError."""
    top = Fields.of(value, "")
    name = top.take("name", read_text, "scenario")
    scenario = Scenario(
        name=name,
        title=top.take("title", read_text, name),
        machine=top.take("machine", lambda one: _machine(Fields.of(one, "machine"))),
        kernel=top.take("kernel", _kernel, LATEST),
        seconds=top.take("seconds", _seconds, 60.0),
        warmup_seconds=top.take("warmup", _seconds_or_none, 1.0),
        window_ms=top.take("window", lambda one: _window(Fields.of(one, "window")), (0.0, 200.0)),
        pods=top.list("pods", lambda one, path: _pod(Fields.of(one, path))),
        subject=top.take("subject", read_text, ""),
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
    hz = one.take("hz", lambda value: read_count(value, 0, 1000), 250)
    machine = SimulatedMachine(
        cpus=one.take("cpus", lambda value: read_count(value, 1, MAX_CPUS)),
        tick_ns=SECOND // hz if hz else 0,
        ticks=one.take("ticks", choice("aligned", "random"), "aligned"),
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
    changes: dict[str, Any] = {name: one.take(_camel(name), read_flag, getattr(base, name)) for name in flags}
    changes["order"] = one.take("order", choice("head", "mixed", "tail"), base.order)
    changes["slice_ns"] = one.take("slice", positive_time, base.slice_ns)
    one.done(" ".join(["version", "order", "slice", *map(_camel, flags)]))
    return replace(base, **changes)


def _version(value: Any) -> Switches:
    """YAML reads 5.10 without quotes as the number 5.1."""
    if isinstance(value, float) and str(value).endswith((".1", ".2")):
        raise ValueError(f'{value} may be {value} or {value}0: write it in quotes, as in "{value}0"')
    return for_kernel(str(value))


def _window(one: Fields) -> tuple[float, float]:
    start = one.take("start", read_duration, 0)
    length = one.take("length", positive_time, 200 * MS)
    one.done("start length")
    return start / MS, length / MS


def _pod(one: Fields) -> ScenarioPod:
    name = one.take("name", read_name)
    containers = one.list("containers", lambda value, path: _container(Fields.of(value, path)))
    limit = _limit(one, pod_limit(containers))
    phase = _phase(one, limit)
    one.done("name containers limit period burst phase")
    return ScenarioPod(name, containers, limit, phase)


def _container(one: Fields) -> ScenarioContainer:
    limit = _limit(one, None)
    requested = limit.quota_ns * 1000 // limit.period_ns if limit else 0
    container = ScenarioContainer(
        name=one.take("name", read_name),
        workloads=_workloads(one),
        request_milli=one.take("request", read_milli, requested),
        limit=limit,
        cpus=one.take("cpus", _cpus, None),
        pinned=one.take("pinned", read_flag, False),
        phase_ns=_phase(one, limit),
    )
    one.done("name request limit period burst cpus pinned phase workload workloads")
    return container


def _limit(one: Fields, default: CFSLimit | None) -> CFSLimit | None:
    """`limit` in CPUs, over a `period`, with a `burst`; a limit of `none` takes a pod's own away."""
    if one.values.get("limit") == "none":
        del one.values["limit"]
        default = None
    milli = one.take("limit", read_milli, None)
    period = one.take("period", positive_time, None)
    burst = one.take("burst", read_duration, 0)
    if milli:
        period = period or 100 * MS
        return CFSLimit(milli * period // 1000, period, burst)
    for name, value in (("burst", burst), ("period", period)):
        if value:
            raise ScenarioError(f"{one.at(name)}: a {name} requires a limit")
    return default


def _phase(one: Fields, limit: CFSLimit | None) -> int | None:
    phase = one.take("phase", read_duration, None)
    if phase is not None and limit is None:
        raise ScenarioError(f"{one.at('phase')}: a phase requires a limit")
    return phase


def _workloads(one: Fields) -> tuple[Workload, ...]:
    if "workload" in one.values and "workloads" not in one.values:
        return (_workload(Fields.of(one.values.pop("workload"), one.at("workload"))),)
    return one.list("workloads", lambda value, path: _workload(Fields.of(value, path)))


def _workload(one: Fields) -> Workload:
    kind = one.take("kind", choice(*_KINDS))
    read_kind, known = _KINDS[kind]
    workload = read_kind(one)
    one.done(f"kind {known}")
    return workload


def _spin(one: Fields) -> Workload:
    return Spin(_threads(one))


def _bursts(one: Fields) -> Workload:
    every, pause = one.take("every", read_duration, 0), one.take("pause", read_duration, 0)
    if bool(every) == bool(pause):
        raise ScenarioError(
            f"{one.path}: give either every (from start to start) or pause (from end to start)"
        )
    return Bursts(
        one.take("run", _duration),
        every,
        pause,
        _threads(one, 1),
        one.take("start", read_duration, 0),
    )


def _server(one: Fields) -> Workload:
    return ThreadPoolServer(
        one.take("service", _duration),
        _arrivals(one),
        _threads(one),
        one.take("network", read_duration, 0),
    )


def _event_server(one: Fields) -> Workload:
    return EventServer(
        wake=one.take("wake", _duration, Duration(10 * US)),
        accept=one.take("accept", _duration, Duration(5 * US)),
        handle=one.take("handle", _duration),
        arrivals=_arrivals(one),
        threads=_threads(one),
        network_ns=one.take("network", read_duration, 100 * US),
        send_ns=one.take("send", read_duration, 100 * US),
        warm=one.take("warm", read_part, 1.0),
    )


def _parallel(one: Fields) -> Workload:
    return Parallel(
        serial=one.take("serial", _duration, Duration(0)),
        work=one.take("work", _duration),
        regions=one.take("regions", read_count, 1),
        arrivals=_arrivals(one),
        threads=_threads(one),
        spin_ns=one.take("spin", read_duration, 1 * MS),
        imbalance=one.take("imbalance", read_part, 0.1),
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
    return one.take("threads", read_count, default)


def _arrivals(one: Fields) -> Open | Closed:
    rate = one.take("rate", read_number, None)
    clients = one.take("clients", read_count, None)
    think = one.take("think", read_duration, 0)
    if (rate is None) == (clients is None):
        raise ScenarioError(
            f"{one.path}: give either rate (requests per second) or clients (each waits for its answer)"
        )
    batch = one.take("batch", read_count, 1)
    variation = one.take("variation", _variation, 0.0 if rate is None else 1.0)
    if clients is not None:
        if batch != 1:
            raise ScenarioError(f"{one.path}: batch is for rate; clients send one request each")
        return Closed(clients, think, variation)
    return Open(rate or 0.0, batch, variation)


def _duration(value: Any) -> Duration:
    """`5ms`, or `{mean: 5ms, sigma: 0.5}`."""
    if not isinstance(value, Mapping):
        return Duration(positive_time(value))
    one = Fields.of(value, "")
    try:
        duration = Duration(one.take("mean", positive_time), one.take("sigma", _sigma, 0.0))
        one.done("mean sigma")
    except ScenarioError as error:
        raise ValueError(str(error)) from None
    return duration


def _sigma(value: Any) -> float:
    """Beyond 4 a mean would be made of what hardly ever happens."""
    found = read_number(value)
    if found > 4:
        raise ValueError(f"{shown(value)} is not between 0 and 4")
    return found


def _variation(value: Any) -> float:
    """Beyond 10 hardly any interval is near the mean."""
    found = read_number(value)
    if found > 10:
        raise ValueError(f"{shown(value)} is not between 0 and 10")
    return found


def _speed(value: Any) -> int:
    if not 0.1 <= read_number(value) <= 1:
        raise ValueError(f"{shown(value)} is not between 0.1 and 1: how fast a CPU is beside a busy sibling")
    return round(float(value) * 1000)


def _seconds(value: Any) -> float:
    found = value if isinstance(value, int | float) else read_duration(value) / SECOND
    if isinstance(value, bool) or not 0 < found <= MAX_SECONDS:
        raise ValueError(f"{shown(value)} is not a time from 0 to {MAX_SECONDS:g} seconds")
    return float(found)


def _seconds_or_none(value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else _seconds(value)


def _cpus(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not a list of CPUs: write such as 0-3,8")
    found = CPUSet.parse(str(value))
    if not found:
        raise ValueError("the list of CPUs is empty")
    return found.mask


def _notes(value: Any) -> tuple[str, ...]:
    return tuple(map(read_text, value)) if isinstance(value, list) else (read_text(value),)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
