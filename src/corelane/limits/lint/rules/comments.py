"""The rule about comments that ignore findings. The linter reads them file by file, not object by object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.limits.lint.findings import Remark, rule
from corelane.limits.lint.pod_context import PodContext
from corelane.limits.lint.policy import Severity


@rule("bad-ignore", Severity.WARNING, "Write `# corelane: ignore RULE reason`.")
def _bad_ignore(context: PodContext) -> Iterator[Remark]:
    """A comment that ignores nothing.

    A `# corelane: ignore` that names no rule, a rule that does not exist, or gives no reason.
    """
    yield from ()


RULES: Final = (_bad_ignore,)
