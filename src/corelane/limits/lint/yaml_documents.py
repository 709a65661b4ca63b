"""YAML and JSON texts to located values, document by document: a broken one does not spoil the others.

Built from the parser's events: aliases cost nothing however often they are used, and nesting has a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from corelane.limits.lint.located import (
    Located,
    LocatedList,
    LocatedMapping,
    LocatedMember,
    LocatedScalar,
    Position,
    at,
    items,
)

FIRST: Final = re.compile(r"\{\{[-=]?\s*[\w.\"($/*]")
"""Beginning of a template's braces."""
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
    """Say why `text` is not YAML, and the remedy: `braces` is its first template and the rest of the line."""
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
    """Return what to do about a template in place of an amount; empty where there is none."""
    if is_helms(amount):
        return "render the template first (helm template CHART)"
    if "{{" in amount:
        return "render the template with the program that it is written for, and lint the result"
    return "substitute the variable first, and lint the result" if "${" in amount else ""


MAX_DEPTH: Final = 200
MOST_EXPANDED: Final = 100_000
"""Most values that the aliases of a document stand for: what reads them follows each."""
_TOO_DEEP: Final = "exceeded maximum nesting depth"
"""libyaml's error beyond 1,000 levels, since PyYAML 6.0.4; it may come before level 201 is reported."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BEGINS: Final = (yaml.StreamStartEvent, yaml.DocumentStartEvent)
_MARKER: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_DEFINES: Final = tuple(
    re.compile(rf"^{key}:[ \t]+[\"']?{value}[\"']?[ \t]*\r?$", re.MULTILINE)
    for key, value in (
        ("apiVersion", r"apiextensions\.k8s\.io/v1(?:beta1)?"),
        ("kind", "CustomResourceDefinition"),
    )
)
_END: Final = re.compile(r"^\.\.\.", re.MULTILINE)
_DEFINITION: Final = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
_SOURCE: Final = re.compile(r"^# Source: (\S[^\r\n]*)", re.MULTILINE)
_OBJECT: Final = re.compile(r"\s*\{")
_ESCAPE: Final = re.compile(r"\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class YAMLFault:
    """A document that cannot be read, the place and the reason; lines and columns count from 1."""

    line: int
    column: int
    message: str
    template: bool = False
    """Whether it is a template that was not rendered."""
    helm: bool = False
    """Whether that is one of Helm."""


@dataclass(frozen=True, slots=True)
class YAMLDocument:
    """One document of a file. `source` is the template that Helm says it comes from."""

    root: Located
    source: str = ""


class _Broken(Exception):  # noqa: N818 - never leaves this module
    """A fault in a document, and its place."""

    def __init__(self, mark: Any, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = mark.line + 1, mark.column + 1, message


@dataclass(slots=True)
class _Reader:
    """A document on its way from events to nodes."""

    events: Iterator[Any]
    first_line: int
    depth: int = 0
    trail: tuple[int, ...] = ()
    anchors: dict[str, Located] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Values that each anchor stands for, with the aliases within it."""
    values: int = 0
    expanded: int = 0

    def place(self, event: Any) -> Position:
        line = event.start_mark.line + self.first_line
        trail = self.trail if self.trail[-1:] == (line,) else (*self.trail, line)
        return Position(line, event.start_mark.column + 1, trail)


def read(content: str) -> list[YAMLDocument | YAMLFault]:
    """Every document of a YAML or JSON text, or why it cannot be read; empty documents are left out.

    The schema in a CustomResourceDefinition, often most of a file, is not parsed: there is nothing to judge.
    """
    documents: list[YAMLDocument | YAMLFault] = []
    for first_line, chunk in _chunks(content.removeprefix("\ufeff")):
        named = _SOURCE.search(chunk)
        if not _is_empty(chunk.removeprefix("---")):
            # One document, a CustomResourceDefinition in block style.
            if all(line.search(chunk) for line in _DEFINES) and not _END.search(chunk):
                chunk = _DEFINITION
            documents.extend(_document(chunk, first_line, named[1].rstrip() if named else "", content))
    return documents


def _chunks(content: str) -> Iterator[tuple[int, str]]:
    """The text cut before every `---`: in column 1 that always begins a document. Directives stay with it."""
    cuts = [match.start() for match in _MARKER.finditer(content)]
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    line, held = 1, ""
    for piece in pieces:
        text = held + piece
        if piece is not pieces[-1] and "%" in text and _is_empty(text):
            held = text
            continue
        yield line, text
        line, held = line + text.count("\n"), ""


def _is_empty(text: str) -> bool:
    """Whether there are only comments and directives."""
    return all(not line.strip() or line.lstrip()[0] in "#%" for line in text.splitlines())


def _document(chunk: str, first_line: int, source: str, content: str) -> list[YAMLDocument | YAMLFault]:
    try:
        return [YAMLDocument(root, source) for root in _roots(chunk, first_line)]
    except _Broken as error:
        fault = _explained(error, chunk, first_line, content)
    try:
        parts = list(_json_values(chunk, first_line))
        return [YAMLDocument(root, source) for line, part in parts for root in _roots(_as_yaml(part), line)]
    except (_Broken, ValueError, RecursionError):
        return [fault]


def _json_values(chunk: str, line: int) -> Iterator[tuple[int, str]]:
    """JSON objects one after another, as kubectl reads them: each with its line, moved to its column.

    Raises ValueError.
    """
    decoder, end = json.JSONDecoder(), 0
    while begin := _OBJECT.match(chunk, end):
        line += begin[0].count("\n")
        at, end = begin.end() - 1, decoder.raw_decode(chunk, begin.end() - 1)[1]
        yield line, " " * (at - chunk.rfind("\n", 0, at) - 1) + chunk[at:end]
        line += chunk.count("\n", at, end)
    if chunk[end:].strip():
        raise ValueError("not JSON objects alone")


def _explained(error: _Broken, chunk: str, first_line: int, content: str) -> YAMLFault:
    """A template's braces, where no quotes make them text, are why its file is not YAML."""
    template = FIRST.search(_QUOTED.sub(lambda match: " " * len(match[0]), chunk))
    if not template:
        return YAMLFault(error.line + first_line - 1, error.column, error.message)
    before = chunk[: template.start()]
    column = template.start() - (before.rfind("\n") + 1) + 1
    line = chunk[template.start() :].partition("\n")[0]
    message, helm = reason(content, line), is_helms(content)
    return YAMLFault(first_line + before.count("\n"), column, message, template=True, helm=helm)


def _as_yaml(chunk: str) -> str:
    """A JSON text with what JSON allows and YAML does not made harmless, in place. Raises ValueError."""
    json.loads(chunk)
    harmless = _ESCAPE.sub(_private, chunk)
    return harmless.replace("\t", " ")


def _private(escape: re.Match[str]) -> str:
    """Half a surrogate pair as a character for private use, of which each has its own; others as they are."""
    if len(escape[1]) == 1:
        return escape[0]
    return f"\\u{int(escape[1][1:], 16) - 0xD800 + 0xE000:04x}"


def _roots(chunk: str, first_line: int) -> list[Located]:
    marks = (*_BEGINS, yaml.DocumentEndEvent, yaml.StreamEndEvent)
    try:
        reader = _Reader(yaml.parse(chunk, Loader=_LOADER), first_line)
        return [_node(event, reader, unit=True) for event in reader.events if not isinstance(event, marks)]
    except yaml.YAMLError as error:
        raise _broken(error, chunk) from None


def _broken(error: yaml.YAMLError, chunk: str) -> _Broken:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    if mark:
        # libyaml's own index counts bytes.
        offset = sum(map(len, chunk.splitlines(keepends=True)[: mark.line])) + mark.column
        if chunk[offset:].startswith("\t"):
            return _Broken(mark, "not YAML: a tab where YAML requires spaces")
    else:
        position = getattr(error, "position", 0)
        before = chunk[:position]
        column = position - (before.rfind("\n") + 1)
        mark = yaml.Mark("", position, before.count("\n"), column, None, 0)
    if _TOO_DEEP in problem:
        return _Broken(mark, f"nested deeper than {MAX_DEPTH} levels")
    return _Broken(mark, f"not YAML: {' '.join(problem.split())}")


def _node(event: Any, reader: _Reader, *, unit: bool = False) -> Located:
    """A value; a `unit` (a document, a list's item) is something its first line can stand for."""
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in reader.anchors:
            raise _Broken(
                event.start_mark, f"not YAML: there is no anchor &{event.anchor} for *{event.anchor}"
            )
        size = reader.sizes[event.anchor]
        reader.values, reader.expanded = reader.values + size, reader.expanded + size
        if reader.expanded > MOST_EXPANDED:
            raise _Broken(event.start_mark, f"aliases expand to more than {MOST_EXPANDED:,} values")
        return reader.anchors[event.anchor]
    before = reader.values
    reader.values += 1
    if isinstance(event, yaml.ScalarEvent):
        plain = not event.style and event.tag in (None, "!", "tag:yaml.org,2002:null")
        made: Located = LocatedScalar(str(event.value), plain, reader.place(event))
    else:
        made = _collection(event, reader, unit=unit)
    if event.anchor:
        reader.anchors[event.anchor] = made
        reader.sizes[event.anchor] = reader.values - before
    return made


def _collection(event: Any, reader: _Reader, *, unit: bool) -> Located:
    place, before = reader.place(event), reader.trail
    if reader.depth == MAX_DEPTH:
        raise _Broken(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
    reader.depth, reader.trail = reader.depth + 1, place.trail if unit else before
    if isinstance(event, yaml.MappingStartEvent):
        made: Located = LocatedMapping(_members(reader), place)
    else:
        entries = _until(yaml.SequenceEndEvent, reader)
        made = LocatedList(tuple(_node(entry, reader, unit=True) for entry in entries), place)
    reader.depth, reader.trail = reader.depth - 1, before
    return made


def _until(end: type[Any], reader: _Reader) -> Iterator[Any]:
    event = next(reader.events)
    while not isinstance(event, end):
        yield event
        event = next(reader.events)


def _members(reader: _Reader) -> dict[str, LocatedMember]:
    """The members of a mapping; what `<<` merges in gives way to the mapping's own."""
    own: dict[str, LocatedMember] = {}
    merged: dict[str, LocatedMember] = {}
    around = reader.trail
    for event in _until(yaml.MappingEndEvent, reader):
        if not isinstance(event, yaml.ScalarEvent):
            raise _Broken(event.start_mark, "a key must be a single value, not a mapping or a list")
        key, place = str(event.value), reader.place(event)
        reader.trail = place.trail
        value = _node(next(reader.events), reader)
        reader.trail = around
        if key == "<<" and not event.style:
            sources = value.items if isinstance(value, LocatedList) else (value,)
            inherited: dict[str, LocatedMember] = {}
            for source in sources:
                if isinstance(source, LocatedMapping):
                    inherited = {**source.members, **inherited}
            merged = {**inherited, **merged}
        elif key in own:
            raise _Broken(event.start_mark, f"the key {key!r} is twice in this mapping")
        else:
            own[key] = LocatedMember(place, value)
    return {**merged, **own}


_BLOCK: Final = re.compile(r"\|[0-9+-]*[ \t]*(#.*)?$")


def inline_patches(root: Located, content: str) -> Iterator[YAMLDocument | YAMLFault]:
    """The documents of a kustomization's literal blocks under `patches` and `patchesStrategicMerge`.

    `content` is the text of its file. A list of operations (RFC 6902) is a document, too, though no object.
    """
    lines = content.removeprefix("\ufeff").split("\n")
    given = [at(entry, "patch") for entry in items(root, "patches")]
    for scalar in (*given, *items(root, "patchesStrategicMerge")):
        if isinstance(scalar, LocatedScalar):
            for text in _in_place(scalar, [line.removesuffix("\r") for line in lines]):
                yield from read(text)


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
