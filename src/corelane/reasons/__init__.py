"""Reasons of decisions, as data: a code, its values, and the one sentence made from them.

Deciding code makes a `Reason`; callers compare its code; `sentence` returns its text.
"""

from corelane.reasons.codes import Code, Reason
from corelane.reasons.sentences import Refusal, label, sentence

__all__ = ["Code", "Reason", "Refusal", "label", "sentence"]
