"""Label selectors on the wire, as pod affinity, topology spread, claims and disruption budgets use them."""

from __future__ import annotations

from msgspec import field

from corelane.kube.meta import Wire
from corelane.workload.selectors import LabelRequirement, Operator, Selector


class LabelSelectorRequirement(Wire, frozen=True):
    """`operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """All labels and all expressions must match; without any, every object matches.

    An absent selector is None where this is used, and matches no object.
    """

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def compiled(self) -> Selector:
        """Return the selector that can be matched. Raises ValueError for an unknown operator."""
        return Selector(self.match_labels, tuple(_requirement(rule) for rule in self.match_expressions))


def _requirement(rule: LabelSelectorRequirement) -> LabelRequirement:
    try:
        return LabelRequirement(rule.key, Operator(rule.operator), rule.values)
    except ValueError:
        options = ", ".join(Operator)
        raise ValueError(
            f"label selector, key {rule.key!r}: operator {rule.operator!r} is unknown; use one of {options}"
        ) from None
