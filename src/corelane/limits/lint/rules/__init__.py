"""The table of rules, by subject; `RULES` has them all in the order in which findings are explained."""

from typing import Final

from corelane.limits.lint.findings import Rule
from corelane.limits.lint.rules import amounts, burst, limit, memory, namespace, request, scaling, threads

__all__ = ["BY_ID", "RULES"]

RULES: Final[tuple[Rule, ...]] = (
    *amounts.RULES,
    *limit.RULES,
    *request.RULES,
    *threads.RULES,
    *memory.RULES,
    *namespace.RULES,
    *scaling.RULES,
    *burst.RULES,
)
BY_ID: Final = {rule.id: rule for rule in RULES}
