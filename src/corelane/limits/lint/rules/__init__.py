"""The table of rules, by subject; `RULES` has all in the order of the documents."""

from typing import Final

from corelane.limits.lint import findings
from corelane.limits.lint.findings import LintRule
from corelane.limits.lint.rules import (
    amounts,
    cpu_burst,
    cpu_limits,
    namespaces,
    requests_and_memory,
    thread_counts,
)

__all__ = ["BY_ID", "RULES"]

RULES: Final[tuple[LintRule, ...]] = (
    *amounts.RULES,
    *cpu_limits.RULES,
    *requests_and_memory.RULES,
    *thread_counts.RULES,
    *requests_and_memory.MEMORY_RULES,
    *namespaces.RULES,
    *namespaces.AUTOSCALING_RULES,
    *cpu_burst.RULES,
    *findings.COMMENT_RULES,
)
BY_ID: Final = {rule.id: rule for rule in RULES}
