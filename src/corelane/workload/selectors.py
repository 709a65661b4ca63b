"""Label selectors: which other pods are meant, as Kubernetes' `LabelSelector` says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class Operator(StrEnum):
    """How a requirement compares a label; the words of `matchExpressions`."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"

    @property
    def compares(self) -> bool:
        """Whether it needs values to compare with; the others must have none."""
        return self in (Operator.IN, Operator.NOT_IN)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One of `matchExpressions`: what a label must be, or not be."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """As Kubernetes: NotIn holds for a pod without the label too."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels

    def __str__(self) -> str:
        """As `kubectl get --selector` takes it."""
        match self.operator:
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Which other pods are meant: those with all these labels, and for which all expressions hold."""

    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    expressions: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            one.holds(labels) for one in self.expressions
        )

    def __str__(self) -> str:
        """As `kubectl get --selector` takes it; "" for every pod."""
        equal = (f"{key}={value}" for key, value in sorted(self.labels.items()))
        return ",".join((*equal, *map(str, self.expressions)))
