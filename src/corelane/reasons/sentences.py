"""The sentence of each code: its object, what happened, the observed value, the limit, the remedy.

CPUs and NUMA nodes in values are masks; memory is in bytes, CPU requests in milliCPU.
"""

from collections.abc import Mapping
from typing import Any, Final

from corelane.reasons import admissions, placements, recovery
from corelane.reasons.codes import Code, Reason
from corelane.reasons.phrases import Phrase, render


class Refusal(Exception):  # noqa: N818 - an outcome, not an error
    """A pod is rejected: the code says why, the values what was observed."""

    def __init__(self, code: Code, *values: Any) -> None:
        super().__init__(code, *values)
        self.reason = Reason(code, values)

    def __str__(self) -> str:
        return sentence(self.reason)


def label(reason: Reason) -> str:
    """Return the step that a reason explains, or of a refusal the word in the pod's status."""
    if reason.code is Code.TERM:
        return str(reason.values[0])
    return _TABLE[reason.code][0]


def sentence(reason: Reason) -> str:
    """Return the sentence for people."""
    return render(_TABLE, reason)


_TABLE: Final[Mapping[Code, tuple[str, Phrase]]] = {
    **placements.SENTENCES,
    **admissions.SENTENCES,
    **recovery.SENTENCES,
}
