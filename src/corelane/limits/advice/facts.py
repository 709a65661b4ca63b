"""What advice is made from: whom it is for, what was measured, who else is there, how long answers take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from corelane.limits.measure import Quota, Rates, Surroundings, Unusable
from corelane.workload import QOSClass

__all__ = ["Evidence", "Latency", "Neighbour", "Node", "Range", "Scaler", "Setting", "Slot", "Subject"]


@dataclass(frozen=True, slots=True)
class Range:
    """Between two amounts, both possible; equal ones are a point."""

    low: float
    high: float

    @property
    def is_point(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Setting:
    """What says how many threads run: an environment variable, or (`env` is false) an argument."""

    name: str
    count: int | None
    processes: bool = False
    env: bool = True


@dataclass(frozen=True, slots=True)
class Scaler:
    """A HorizontalPodAutoscaler's CPU utilisation target, in percent of requests.

    It counts one container, or ("") all of the pod, whose requests are `request_milli` together.
    """

    name: str
    percent: int
    container: str = ""
    request_milli: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """A container of a workload. CPU in milliCPU, memory in bytes, 0 for none.

    `known` is false where only its name is known, since no list of pods tells what it asks for.
    """

    kind: str
    namespace: str
    name: str
    container: str
    known: bool = True
    init: bool = False
    """Whether it stands among the init containers, as sidecars do."""
    batch: bool = False
    qos: QOSClass = QOSClass.BURSTABLE
    request: int = 0
    limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    exclusive: int = 0
    """CPUs that it has alone."""
    held: tuple[str, ...] = ()
    """Containers whose exclusive CPUs hang on this one's limit being its request."""
    incomplete: tuple[str, ...] = ()
    """Other containers that keep the pod from being Guaranteed."""
    whole_pod: bool = False
    """Whether the pod has resources as a whole."""
    settings: tuple[Setting, ...] = ()
    threads: int | None = None
    """How many run at once by these settings."""
    runtime: str = ""
    """The variable or flag by which software of its kind is told how many threads to run."""
    follows_limit: tuple[str, ...] = ()
    """Variables that take their value from limits.cpu."""
    scalers: tuple[Scaler, ...] = ()

    @property
    def title(self) -> str:
        where = "/".join(filter(None, (self.namespace, self.name)))
        owner = f"{self.kind} {where}" if self.kind else where
        return f"{owner}/{self.container}" if owner else self.container


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pod on a node: what it requests in milliCPU, and how many CPUs it has alone."""

    title: str
    qos: QOSClass
    request: int
    exclusive: int = 0
    own: bool = False
    """Whether it is one of the workload's that advice is for."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's CPUs for pods, in milliCPU (0: not known), and the pods on it."""

    name: str
    milli: int
    pods: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """What a container did between two readings about a period apart. Times in ms, of the CPU."""

    seconds: float
    used: float
    throttled: float


class Form(StrEnum):
    """Where a latency comes from."""

    FILE = "file"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class Latency:
    """What was measured where it matters: percentile (50, 99) to milliseconds."""

    quantiles: Mapping[float, float]
    form: Form = Form.FILE


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of one replica, the one that lost most, and of how many there are.

    `cpus` is how many it could run on, 0 where nobody knows; `slots` its counters in every period.
    """

    rates: Rates | Unusable
    pod: str = ""
    node: str = ""
    replicas: int = 1
    cpus: int = 0
    slots: tuple[Slot, ...] = ()
    latency: Latency | None = None
    notes: tuple[str, ...] = ()
    others: tuple[float, ...] = field(default=())
    """Throttled milliseconds a second of every replica, the worst first."""
    around: Surroundings | None = None
    """What else happened on its CPUs, where that was measured."""
    waited: float = 0.0
    """For how long neighbours or the hypervisor held it back, in ms a second, where a record says so."""

    @property
    def quota(self) -> Quota:
        return self.rates.quota if isinstance(self.rates, Rates) else Quota()
