"""Answers of a Kubernetes API server made comparable: what changes from run to run is replaced by a word.

The rules are those of the vectors' README: `normalise` an answer, `prune` what is not to be compared,
`align` what is compared as a subset, reduce errors and warnings to their `substance`, then list the
`differences`. Wording is not compared.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Answer = dict[str, Any]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"(\d+[ydhms])+")
_SINCE = re.compile(r"(?<=\()(\d+[ydhms])+(?= ago\))")
_QUOTED_VERSION = re.compile(
    r"(?<=current: )\d+|(?<=object meta: )\d+|(?<=in record \()\d+"
    r'|(?<=resourceVersion\\":\\")\d+|(?<=resourceVersion":")\d+|(?<=resourceVersion:)\d+'
)
_DEFAULT_SCHEDULERS = {"default-scheduler", "corelane-scheduler"}
_MANAGED_BY = ("operation", "manager", "subresource", "apiVersion")
_RANDOM = "[a-z0-9]{5}(?![a-z0-9])"
_FIELD_WARNING = re.compile(r"unknown field|duplicate field|already set in map")


@dataclass(slots=True)
class Normaliser:
    """Replaces run-dependent text in answers; keeps the name prefixes that random parts followed so far."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    managed_fields: bool = False
    prefixes: set[str] = field(default_factory=set)

    def learn(self, value: object) -> None:
        """Remember every `generateName` in `value`, so that the names made from it are recognised."""
        if isinstance(value, Mapping):
            prefix = value.get("generateName")
            if isinstance(prefix, str) and prefix:
                self.prefixes.add(prefix)
        for child in _children(value):
            self.learn(child)

    def __call__(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            kept = {k: v for k, v in value.items() if k != "managedFields" or self.managed_fields}
            return {k: self(v, k) for k, v in kept.items()}
        if isinstance(value, list):
            return self._list(value, key)
        if isinstance(value, str):
            return self._text(value, key)
        return value

    def _list(self, items: list[Any], key: str) -> list[Any]:
        if key == "cells":
            return [self._cell(item) if isinstance(item, str) else self(item) for item in items]
        if key == "managedFields":
            items = sorted(
                ({k: v for k, v in entry.items() if k != "time"} for entry in items),
                key=lambda entry: [str(entry.get(part, "")) for part in _MANAGED_BY],
            )
        return [self(item) for item in items]

    def _cell(self, text: str) -> str:
        return "<age>" if _AGE.fullmatch(text) else _SINCE.sub("<age>", self._text(text, ""))

    def _text(self, text: str, key: str) -> str:
        if key == "resourceVersion" and text.isdigit() and text != "0":
            return "<rv>"
        if key == "continue" and text:
            return "<continue>"
        if key == "schedulerName" and text in _DEFAULT_SCHEDULERS:
            return "<scheduler>"
        text = _QUOTED_VERSION.sub("<rv>", _TIME.sub(self._time, _UUID.sub("<uid>", text)))
        for prefix in self.prefixes:
            text = re.sub(re.escape(prefix) + _RANDOM, f"{prefix}<rand>", text)
        return text

    def _time(self, match: re.Match[str]) -> str:
        try:
            when = datetime.fromisoformat(match[0])
        except ValueError:
            return match[0]
        near = abs(when.date() - self.now.date()) <= timedelta(days=1)
        return "<time>" if near else match[0]


def _children(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def prune(answer: Answer, paths: Iterable[str]) -> Answer:
    """A copy of `answer` without the members at the dotted `paths`; `*` stands for every element."""
    answer = deepcopy(answer)
    for path in paths:
        *above, last = path.split(".")
        for parent in _at(answer, above):
            if isinstance(parent, dict):
                parent.pop(last, None)
    return answer


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] == "*":
        for child in _children(value):
            yield from _at(child, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def align(expected: Answer, actual: Answer, subsets: Mapping[str, str]) -> Answer:
    """`actual`, its containers at the paths of `subsets` cut down to what `expected` lists, in that order.

    `subsets` gives for each path the member that identifies an element of the list, with dots where it is
    nested (`metadata.name`), or `key` for a dict. An expected element without it is compared as missing.
    """
    actual = deepcopy(actual)
    for path in sorted(subsets, key=lambda path: path.count(".")):
        _align(expected, actual, path.split("."), subsets[path])
    return actual


def _align(expected: Any, actual: Any, path: list[str], key: str) -> None:
    head, rest = path[0], path[1:]
    if head == "*":
        if isinstance(expected, list) and isinstance(actual, list):
            for e, a in zip(expected, actual, strict=False):
                _align(e, a, rest, key)
        return
    if not (isinstance(expected, dict) and isinstance(actual, dict) and head in expected and head in actual):
        return
    if rest:
        _align(expected[head], actual[head], rest, key)
    else:
        actual[head] = _listed(expected[head], actual[head], key)


def _listed(expected: Any, actual: Any, key: str) -> Any:
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {name: actual[name] for name in expected if name in actual}
    if not (isinstance(expected, list) and isinstance(actual, list)):
        return actual
    found = {_identity(item, key): item for item in actual}
    return [found[identity] for item in expected if (identity := _identity(item, key)) in found]


def _identity(item: Any, key: str) -> str:
    """Return the member that identifies an element, as text, for comparison; its whole text without one."""
    values = list(_at(item, [key])) or list(_at(item, key.split(".")))
    return repr(values[0] if values else item)


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """One line for each place where `actual` is not `expected`; types count, `<any>` matches everything."""
    if expected == "<any>":
        return
    if type(expected) is not type(actual):
        yield f"{path}: expected {_short(expected)}, got {_short(actual)}"
    elif isinstance(expected, dict):
        yield from _dict_differences(expected, actual, path)
    elif isinstance(expected, list):
        yield from _list_differences(expected, actual, path)
    elif expected != actual:
        yield f"{path}: expected {_short(expected)}, got {_short(actual)}"


def _dict_differences(expected: Answer, actual: Answer, path: str) -> Iterator[str]:
    for key in expected.keys() | actual.keys():
        where = f"{path}.{key}" if path else key
        if key not in actual:
            yield f"{where}: missing, expected {_short(expected[key])}"
        elif key not in expected:
            yield f"{where}: unexpected {_short(actual[key])}"
        else:
            yield from differences(expected[key], actual[key], where)


def _list_differences(expected: list[Any], actual: list[Any], path: str) -> Iterator[str]:
    for i, (e, a) in enumerate(zip(expected, actual, strict=False)):
        yield from differences(e, a, f"{path}[{i}]")
    for i in range(len(actual), len(expected)):
        yield f"{path}[{i}]: missing, expected {_short(expected[i])}"
    for i in range(len(expected), len(actual)):
        yield f"{path}[{i}]: unexpected {_short(actual[i])}"


def _short(value: object, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def substance(answer: Answer) -> Answer:
    """Return the answer without wording: of an error, what programs read; whether warnings name fields.

    Warnings count where fieldValidation gives them: of fields that are unknown or repeated.
    """
    answer = dict(answer)
    if any(_FIELD_WARNING.search(text) for text in answer.pop("warnings", ())):
        answer["warnings"] = "of fields"
    if answer["status"] >= 400 and "body" in answer:
        answer["body"] = _error_body(answer["body"])
    if "events" in answer:
        answer["events"] = [_event(event) for event in answer["events"]]
    return answer


def _error_body(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    if body.keys() == {"yaml"}:
        return {"yaml": _error_body(body["yaml"])}
    if body.get("kind") == "Status":
        return _status(body)
    return body


def _status(status: Answer) -> Answer:
    """Return reason, code, kind and name of the object, and the causes' types and fields."""
    details = status.get("details") or {}
    about = {name: details.get(name) for name in ("kind", "name", "retryAfterSeconds")}
    causes = {(cause.get("reason"), cause.get("field")) for cause in details.get("causes", ())}
    return {
        **{name: status.get(name) for name in ("kind", "status", "reason", "code")},
        "details": about | {"causes": sorted(causes, key=str)},
    }


def _event(event: Any) -> Any:
    if isinstance(event, dict) and event.get("type") == "ERROR":
        return event | {"object": _error_body(event["object"])}
    return event


def compare(step: Mapping[str, Any], actual: Answer, normalise: Callable[[Any], Any]) -> list[str]:
    """The differences between a step's expectation and `actual`; of a set-up step only the status counts."""
    expected = step["expect"]
    if step.get("setup"):
        return list(differences(expected["status"], actual["status"], "status"))
    ignored = step.get("ignore", ())
    wanted, got = prune(expected, ignored), prune(normalise(actual), ignored)
    if wanted["status"] >= 400 and wanted.get("body", {}).keys() == {"text"}:
        return list(differences(wanted["status"], got["status"], "status"))  # words of Go's router
    got = align(wanted, got, step.get("subset", {}))
    return sorted(differences(substance(wanted), substance(got)))
