"""The table of rules, by subject; `RULES` has all in the order of the documents."""

from typing import Final

from corelane.limits.lint.findings import LintRule
from corelane.limits.lint.rules import (
    amounts,
    autoscaling,
    comments,
    cpu_burst,
    cpu_limits,
    cpu_requests,
    memory_limits,
    namespaces,
    thread_counts,
)

__all__ = ["BY_ID", "RULES"]

RULES: Final[tuple[LintRule, ...]] = (
    *amounts.RULES,
    *cpu_limits.RULES,
    *cpu_requests.RULES,
    *thread_counts.RULES,
    *memory_limits.RULES,
    *namespaces.RULES,
    *autoscaling.RULES,
    *cpu_burst.RULES,
    *comments.RULES,
)
BY_ID: Final = {rule.id: rule for rule in RULES}
