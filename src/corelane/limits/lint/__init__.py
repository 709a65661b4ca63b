"""Lint of manifests: what CPU and memory settings in them cost, refuse or promise in vain."""

from corelane.limits.lint.findings import Finding, LintRule
from corelane.limits.lint.linter import BAD_IGNORE, FileFault, LintReport, lint
from corelane.limits.lint.pod_context import QuotaCost
from corelane.limits.lint.policy import (
    CHOICES,
    FAIL_ON,
    Policy,
    PolicyError,
    Severity,
    from_mapping,
    severity,
)
from corelane.limits.lint.rules import RULES

__all__ = [
    "BAD_IGNORE",
    "CHOICES",
    "FAIL_ON",
    "RULES",
    "FileFault",
    "Finding",
    "LintReport",
    "LintRule",
    "Policy",
    "PolicyError",
    "QuotaCost",
    "Severity",
    "from_mapping",
    "lint",
    "severity",
]
