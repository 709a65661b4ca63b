"""Scenarios in files: a YAML file's values, read field by field; a mistake names field and value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
    known: list[str] = field(default_factory=list)
    """Names of the fields that there are: those asked for so far."""

    @staticmethod
    def read(value: object, path: str, read: "Callable[[Fields], T]") -> T:
        """Read a mapping as a whole. Raises ScenarioError, for fields not taken as well."""
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path or 'the file'}: expected fields with values, found {shown(value)}")
        fields = Fields({str(key): item for key, item in value.items()}, path)
        whole = read(fields)
        for name in fields.values:
            near = get_close_matches(name, fields.known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields.known)}"
            raise ScenarioError(f"{fields.at(name)}: there is no such field; {hint}")
        return whole

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, read: Read[T], default: T = _REQUIRED) -> T:
        """The field, read; a default if it is missing or empty. Raises ScenarioError."""
        self.known.append(name)
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

    def within(self, name: str, read: "Callable[[Fields], T]", default: T = _REQUIRED) -> T:
        """A field that is a mapping itself. Raises ScenarioError."""
        return self.take(name, lambda value: Fields.read(value, self.at(name), read), default)

    def list(self, name: str, read: "Callable[[Fields], T]") -> tuple[T, ...]:
        """A list of at least one mapping. Raises ScenarioError."""
        values = self.take(name, lambda value: value)
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{self.at(name)}: expected a list, found {shown(values)}")
        return tuple(Fields.read(value, f"{self.at(name)}[{i}]", read) for i, value in enumerate(values))


def positive_time(value: Any) -> int:
    """Nanoseconds, more than 0."""
    length = read_duration(value)
    if not length:
        raise ValueError(f"{value!r} must be more than 0")
    return length


def read_number(value: Any, most: float = 1e9) -> float:
    """A number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{shown(value)} is not a number from 0 up")
    if value > most:
        raise ValueError(f"{shown(value)} is not between 0 and {most:g}")
    return float(value)


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
    name = read_text(value)
    if not name or "/" in name or not name.isprintable():
        raise ValueError(f"{name!r} is not a name: use letters, digits, - and .")
    return name


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
    match = None if isinstance(value, bool) else _CPU.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an amount of CPU: write such as 500m or 1.5")
    amount = Fraction(match[1]) * (1 if match[2] else 1000)
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
    return Fields.read(value, "", _scenario)


def _scenario(top: Fields) -> Scenario:
    name = top.take("name", read_text, "scenario")
    scenario = Scenario(
        name=name,
        title=top.take("title", read_text, name),
        machine=top.within("machine", _machine),
        kernel=top.take("kernel", _kernel, LATEST),
        seconds=top.take("seconds", _seconds, 60.0),
        warmup_seconds=top.take("warmup", lambda value: _seconds(value, zero=True), 1.0),
        window_ms=top.within("window", _window, (0.0, 200.0)),
        pods=top.list("pods", _pod),
        subject=top.take("subject", read_text, ""),
        notes=top.take("notes", _notes, ()),
    )
    return _checked(scenario)


def _checked(scenario: Scenario) -> Scenario:
    """Check what must hold between fields."""
    names = [pod.name for pod in scenario.pods]
    for i, pod in enumerate(scenario.pods):
        if pod.name in names[:i]:
            raise ScenarioError(f"pods[{i}].name: {pod.name!r} is there twice")
        inner = [container.name for container in pod.containers]
        for j, container in enumerate(pod.containers):
            path = f"pods[{i}].containers[{j}]"
            if container.name in inner[:j]:
                raise ScenarioError(f"{path}.name: {container.name!r} is there twice")
            if container.cpus is not None and not container.cpus < 1 << scenario.machine.cpus:
                raise ScenarioError(
                    f"{path}.cpus: the machine has CPUs 0 to {scenario.machine.cpus - 1} only"
                )
            _check_limit(container.limit, f"{path}.limit", scenario.kernel)
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


def _machine(machine: Fields) -> SimulatedMachine:
    hz = machine.take("hz", lambda value: read_count(value, 0, 1000), 250)
    return SimulatedMachine(
        cpus=machine.take("cpus", lambda value: read_count(value, 1, MAX_CPUS)),
        tick_ns=SECOND // hz if hz else 0,
        ticks=machine.take("ticks", choice("aligned", "random"), "aligned"),
        smt_speed=machine.take("smtSpeed", _speed, None),
    )


def _kernel(value: Any) -> Switches:
    return Fields.read(value, "kernel", _switches) if isinstance(value, Mapping) else _version(value)


def _switches(kernel: Fields) -> Switches:
    base = kernel.take("version", _version, LATEST)
    return replace(
        base,
        expiry=kernel.take("expiry", read_flag, base.expiry),
        burst=kernel.take("burst", read_flag, base.burst),
        clock_needs_tasks=kernel.take("clockNeedsTasks", read_flag, base.clock_needs_tasks),
        task_throttling=kernel.take("taskThrottling", read_flag, base.task_throttling),
        eevdf=kernel.take("eevdf", read_flag, base.eevdf),
        order=kernel.take("order", choice("head", "mixed", "tail"), base.order),
        slice_ns=kernel.take("slice", positive_time, base.slice_ns),
    )


def _version(value: Any) -> Switches:
    """YAML reads 5.10 without quotes as the number 5.1."""
    if isinstance(value, float) and str(value).endswith((".1", ".2")):
        raise ValueError(f'{value} may be {value} or {value}0: write it in quotes, as in "{value}0"')
    return for_kernel(str(value))


def _window(window: Fields) -> tuple[float, float]:
    start = window.take("start", read_duration, 0)
    return start / MS, window.take("length", positive_time, 200 * MS) / MS


def _pod(pod: Fields) -> ScenarioPod:
    name, containers = pod.take("name", read_name), pod.list("containers", _container)
    limit = _limit(pod, pod_limit(containers))
    return ScenarioPod(name, containers, limit, _phase(pod, limit))


def _container(container: Fields) -> ScenarioContainer:
    limit = _limit(container, None)
    requested = limit.quota_ns * 1000 // limit.period_ns if limit else 0
    if "workloads" in container.values:
        workloads = container.list("workloads", _workload)
    else:
        workloads = (container.within("workload", _workload),)
    return ScenarioContainer(
        name=container.take("name", read_name),
        workloads=workloads,
        request_milli=container.take("request", read_milli, requested),
        limit=limit,
        cpus=container.take("cpus", _cpus, None),
        pinned=container.take("pinned", read_flag, False),
        phase_ns=_phase(container, limit),
    )


def _limit(group: Fields, default: CFSLimit | None) -> CFSLimit | None:
    """`limit` in CPUs, over a `period`, with a `burst`; a limit of `none` takes a pod's own away."""
    if group.values.get("limit") == "none":
        del group.values["limit"]
        default = None
    milli = group.take("limit", read_milli, None)
    period = group.take("period", positive_time, None)
    burst = group.take("burst", read_duration, 0)
    if milli:
        period = period or 100 * MS
        return CFSLimit(milli * period // 1000, period, burst)
    for name, value in (("burst", burst), ("period", period)):
        if value:
            raise ScenarioError(f"{group.at(name)}: a {name} requires a limit")
    return default


def _phase(group: Fields, limit: CFSLimit | None) -> int | None:
    phase = group.take("phase", read_duration, None)
    if phase is not None and limit is None:
        raise ScenarioError(f"{group.at('phase')}: a phase requires a limit")
    return phase


def _workload(workload: Fields) -> Workload:
    return _KINDS[workload.take("kind", choice(*_KINDS))](workload)


def _bursts(bursts: Fields) -> Workload:
    every, pause = bursts.take("every", read_duration, 0), bursts.take("pause", read_duration, 0)
    if bool(every) == bool(pause):
        raise ScenarioError(
            f"{bursts.path}: give either every (from start to start) or pause (from end to start)"
        )
    run, threads = bursts.take("run", _duration), _threads(bursts, 1)
    return Bursts(run, every, pause, threads, bursts.take("start", read_duration, 0))


_KINDS: Final[dict[str, Callable[[Fields], Workload]]] = {
    "spin": lambda spin: Spin(_threads(spin)),
    "bursts": _bursts,
    "server": lambda server: ThreadPoolServer(
        service=server.take("service", _duration),
        arrivals=_arrivals(server),
        threads=_threads(server),
        network_ns=server.take("network", read_duration, 0),
    ),
    "event-server": lambda server: EventServer(
        wake=server.take("wake", _duration, Duration(10 * US)),
        accept=server.take("accept", _duration, Duration(5 * US)),
        handle=server.take("handle", _duration),
        arrivals=_arrivals(server),
        threads=_threads(server),
        network_ns=server.take("network", read_duration, 100 * US),
        send_ns=server.take("send", read_duration, 100 * US),
        warm=server.take("warm", lambda value: read_number(value, 1), 1.0),
    ),
    "parallel": lambda team: Parallel(
        serial=team.take("serial", _duration, Duration(0)),
        work=team.take("work", _duration),
        regions=team.take("regions", read_count, 1),
        arrivals=_arrivals(team),
        threads=_threads(team),
        spin_ns=team.take("spin", read_duration, 1 * MS),
        imbalance=team.take("imbalance", lambda value: read_number(value, 1), 0.1),
    ),
}


def _threads(workload: Fields, default: int | None = None) -> int | None:
    return workload.take("threads", lambda value: None if value == "auto" else read_count(value), default)


def _arrivals(load: Fields) -> Open | Closed:
    rate = load.take("rate", read_number, None)
    clients = load.take("clients", read_count, None)
    think = load.take("think", read_duration, 0)
    if (rate is None) == (clients is None):
        raise ScenarioError(
            f"{load.path}: give either rate (requests per second) or clients (each waits for its answer)"
        )
    batch = load.take("batch", read_count, 1)
    # Beyond 10 hardly any interval is near the mean.
    variation = load.take("variation", lambda value: read_number(value, 10), 0.0 if rate is None else 1.0)
    if clients is not None:
        if batch != 1:
            raise ScenarioError(f"{load.path}: batch is for rate; clients send one request each")
        return Closed(clients, think, variation)
    return Open(rate or 0.0, batch, variation)


def _duration(value: Any) -> Duration:
    """`5ms`, or `{mean: 5ms, sigma: 0.5}`; beyond a sigma of 4 a mean is of what hardly ever happens."""
    if not isinstance(value, Mapping):
        return Duration(positive_time(value))
    try:
        return Fields.read(
            value,
            "",
            lambda parts: Duration(
                parts.take("mean", positive_time),
                parts.take("sigma", lambda sigma: read_number(sigma, 4), 0.0),
            ),
        )
    except ScenarioError as error:
        raise ValueError(str(error)) from None


def _speed(value: Any) -> int:
    if not 0.1 <= read_number(value) <= 1:
        raise ValueError(f"{shown(value)} is not between 0.1 and 1: how fast a CPU is beside a busy sibling")
    return round(float(value) * 1000)


def _seconds(value: Any, *, zero: bool = False) -> float:
    seconds = value if isinstance(value, int | float) else read_duration(value) / SECOND
    if isinstance(value, bool) or not (0 < seconds <= MAX_SECONDS or (zero and value == 0)):
        raise ValueError(f"{shown(value)} is not a time from 0 to {MAX_SECONDS:g} seconds")
    return float(seconds)


def _cpus(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not a list of CPUs: write such as 0-3,8")
    cpus = CPUSet.parse(str(value))
    if not cpus:
        raise ValueError("the list of CPUs is empty")
    return cpus.mask


def _notes(value: Any) -> tuple[str, ...]:
    return tuple(map(read_text, value)) if isinstance(value, list) else (read_text(value),)
