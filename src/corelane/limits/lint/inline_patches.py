"""Patches written into a kustomization, as block scalars: workloads at their lines in its file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from corelane.limits.lint import yaml_documents
from corelane.limits.lint.located import Located, LocatedScalar, at, items
from corelane.limits.lint.yaml_documents import YAMLDocument, YAMLFault

_BLOCK: Final = re.compile(r"\|[0-9+-]*[ \t]*(#.*)?$")


def inline_patches(root: Located, content: str) -> Iterator[YAMLDocument | YAMLFault]:
    """The documents of a kustomization's literal blocks under `patches` and `patchesStrategicMerge`.

    `content` is the text of its file. A list of operations (RFC 6902) is a document, too, though no object.
    """
    lines = content.removeprefix("\ufeff").split("\n")
    for scalar in _patches(root):
        for text in _in_place(scalar, [line.removesuffix("\r") for line in lines]):
            yield from yaml_documents.read(text)


def _patches(root: Located) -> Iterator[LocatedScalar]:
    given = [at(one, "patch") for one in items(root, "patches")]
    yield from (
        one for one in (*given, *items(root, "patchesStrategicMerge")) if isinstance(one, LocatedScalar)
    )


def _in_place(scalar: LocatedScalar, lines: list[str]) -> Iterator[str]:
    """The text of each document of a literal block, moved to its line and column in the file."""
    first = scalar.place.line
    if not _BLOCK.match(lines[first - 1][scalar.place.column - 1 :]):
        return
    written = scalar.text.rstrip("\n").split("\n")
    held: list[str] = []
    for number, (line, source) in enumerate(zip(written, lines[first:], strict=False)):
        if line == "---":
            yield "\n" * (first + number - len(held)) + "\n".join(held)
            held = [""]
        else:
            held.append(source)
    yield "\n" * (first + len(written) - len(held)) + "\n".join(held)
