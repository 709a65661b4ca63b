"""Lint of manifests: what CPU and memory settings in them cost, refuse or promise in vain."""

from corelane.limits.lint.cost import Cost
from corelane.limits.lint.engine import BAD_IGNORE, FileFault, Report, lint
from corelane.limits.lint.findings import Finding, Rule, Severity
from corelane.limits.lint.policy import CHOICES, FAIL_ON, Policy, PolicyError, from_mapping, severity
from corelane.limits.lint.rules import RULES

__all__ = [
    "BAD_IGNORE",
    "CHOICES",
    "FAIL_ON",
    "RULES",
    "Cost",
    "FileFault",
    "Finding",
    "Policy",
    "PolicyError",
    "Report",
    "Rule",
    "Severity",
    "from_mapping",
    "lint",
    "severity",
]
