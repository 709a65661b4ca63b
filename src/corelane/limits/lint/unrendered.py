"""Templates that are not rendered yet: what wrote them, as far as that shows, and what to do."""

from __future__ import annotations

import re
from typing import Final

FIRST: Final = re.compile(r"\{\{[-=]?\s*[\w.\"($/*]")
"""Where a template's braces begin."""
_HELM: Final = re.compile(
    r"\{\{[^{}]*(?:(?<![\w.)])\$?\.(?:Values\b|Chart\.|Capabilities\.|Template\.(?:Name|BasePath)"
    r"|Release\.(?:Name|Service|Revision|Is)|Files\.(?:Get|Glob|Lines|As))"
    r"|\b(?:include|template)\s+[\"(])"
)
_ARGO: Final = re.compile(r"\{\{(?:=|\s*(?:args|inputs|outputs|steps|tasks|workflow)\.[\w.-]+\s*\}\})")


def is_helms(text: str) -> bool:
    """Whether a text has a template with objects or functions of Helm."""
    return _HELM.search(text) is not None


def reason(text: str, braces: str) -> str:
    """Why `text` is not YAML, and what to do: `braces` is its first template and what follows on the line."""
    if is_helms(text):
        return (
            "an unrendered Helm template ({{ … }}): render it first: helm template CHART | "
            "corelane limits lint -"
        )
    if _ARGO.match(braces):
        return "not YAML: a template of Argo ({{…}}) without quotes: put the value in quotes"
    return (
        "not YAML: an unrendered template ({{ … }}), not one of Helm: render it with the program that it is "
        "written for, and lint the result"
    )


def remedy(amount: str) -> str:
    """What to do about a template in place of an amount; empty where there is none."""
    if is_helms(amount):
        return "render the template first (helm template CHART)"
    if "{{" in amount:
        return "render the template with the program that it is written for, and lint the result"
    return "substitute the variable first, and lint the result" if "${" in amount else ""
