"""What an admission decided, as every policy answers it; and the exception that rejects a pod."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from corelane import reasons
from corelane.cpuset import CPUSet
from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy

__all__ = ["Decision", "Refusal"]

Explanation: TypeAlias = Callable[[], Iterable[Reason]]

_NO_CPUS: Final[Mapping[str, CPUSet]] = MappingProxyType({})


class Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """A pod is rejected: the code says why, the values what was observed."""

    def __init__(self, code: Code, *values: Any) -> None:
        super().__init__(code, *values)
        self.reason = Reason(code, values)

    def __str__(self) -> str:
        return reasons.sentence(self.reason)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an admission decided. Its reasons and its message are made when they are read."""

    admitted: bool
    refusal: Reason | None = None
    """Why the pod is rejected."""
    assignments: Mapping[str, CPUSet] = field(default_factory=lambda: _NO_CPUS)
    """Container name to the CPUs that it is bound to; containers not named run in a pool."""
    zone: CPUSet | None = None
    """NUMA nodes whose part of the shared pool the other containers run in; None is all of it."""
    shared: CPUSet = field(default_factory=CPUSet)
    """The shared pool after the decision."""
    repicked: bool = False
    """CPUs were proposed, but not all of them were available, and others were allocated."""
    bind: BindPolicy | None = None
    """How the CPUs that all containers of a pod have in common were to lie on cores; None for other pods."""
    bind_required: bool = False
    explanation: Explanation = field(default=tuple, compare=False, repr=False)
    """Makes the reasons."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """How each container came to its CPUs or its pool."""
        return tuple(self.explanation())

    @property
    def reason(self) -> str:
        """The CamelCase word in the status of a rejected pod, "" for an admitted one."""
        return reasons.label(self.refusal) if self.refusal else ""

    @property
    def message(self) -> str:
        """The sentence about a rejection, "" for an admitted pod."""
        return reasons.sentence(self.refusal) if self.refusal else ""
