"""Plugins of other packages, with answers that are checked: a wrong one is an error of that plugin.

What a plugin answers is kept, compared and formatted in many places; without the check an answer of a wrong
type would be an error of the core, which ends the scheduler.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from math import isfinite
from numbers import Real
from typing import Any, Final, TypeAlias

import numpy as np

from corelane.scheduler.framework.changes import ChangeKind
from corelane.scheduler.framework.plugin import (
    NodeReason,
    Nomination,
    NotNominated,
    Plugin,
    Rejection,
    Skip,
    Wait,
)

Check: TypeAlias = Callable[[Any, tuple[Any, ...]], Any]
"""Returns the answer to arguments, as it is used. Raises TypeError, ValueError."""
_OURS: Final = "corelane.scheduler.plugins."
_ATTRIBUTES: Final = ("name", "scope", "depends", "exact")


class WrongAnswer(TypeError):  # noqa: N818 - says what was wrong, not that something was
    """A plugin's answer cannot be used."""

    def __init__(self, plugin: str, method: str, why: str) -> None:
        super().__init__(f"{method} answered {why}")
        self.plugin = plugin


def is_ours(plugin: object) -> bool:
    """Return whether a plugin is one of corelane's, whose answers are not checked."""
    return type(plugin).__module__.startswith(_OURS)


def checked(plugin: Any, name: str = "") -> Any:
    """Return a plugin whose answers are checked; the plugin itself if it is one of corelane's.

    `name` is that of the plugin of which it is a part.
    """
    if isinstance(plugin, _Checked) or is_ours(plugin):
        return plugin
    there = {method: _asked(method, check) for method, check in _CHECKS.items() if hasattr(plugin, method)}
    return type(f"Checked{type(plugin).__name__}", (_Checked,), there)(plugin, name or plugin.name)


class _Checked:
    """A plugin of another package; it has the methods that the plugin has."""

    def __init__(self, plugin: Plugin, name: str) -> None:
        self.plugin, self.reported_as = plugin, name
        for attribute in _ATTRIBUTES:
            if hasattr(plugin, attribute):
                setattr(self, attribute, getattr(plugin, attribute))
        if hasattr(plugin, "parts"):
            self.parts = tuple(checked(part, name) for part in plugin.parts)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.plugin, attribute)


def _asked(method: str, check: Check | None) -> Callable[..., Any]:
    def ask(self: _Checked, *arguments: Any, **named: Any) -> Any:
        answer = getattr(self.plugin, method)(*arguments, **named)
        if check is None:
            return answer
        try:
            return check(answer, arguments)
        except (TypeError, ValueError) as error:
            raise WrongAnswer(self.reported_as, method, str(error)) from None

    return ask


def _text(answer: object) -> str:
    try:
        return f"{answer!r:.100}"
    except Exception:  # noqa: BLE001 - of the plugin's own type
        return f"an object of type {type(answer).__name__}"


def _one_of(*kinds: type) -> Check:
    names = ", ".join(kind.__name__ for kind in kinds)

    def check(answer: Any, _: tuple[Any, ...]) -> Any:
        if answer is None:
            return None
        _use(isinstance(answer, kinds), answer, f"{names} or None")
        if isinstance(answer, Rejection):
            _readable(answer)
        if isinstance(answer, Wait):
            _number(answer.seconds, ())
        return answer

    return check


def _readable(rejection: Rejection) -> None:
    """Raise TypeError for a rejection that cannot be compared or said."""
    reasons = rejection.reasons
    if not isinstance(reasons, tuple) or not all(isinstance(one, NodeReason) for one in reasons):
        raise TypeError(f"a Rejection with reasons {_text(reasons)}; use a tuple of NodeReason")
    try:
        hash(rejection)
        for one in reasons:
            str(one)
    except Exception as error:  # noqa: BLE001 - codes have formats, values have methods
        raise TypeError(f"a Rejection that cannot be read ({type(error).__name__}: {error})") from None


def _use(valid: object, answer: Any, what: str) -> None:
    """Raise TypeError for an answer that cannot be used, with what to use instead."""
    if not valid:
        raise TypeError(f"{_text(answer)}; use {what}")


def _number(answer: Any, _: tuple[Any, ...]) -> float:
    _use(isinstance(answer, Real) and isfinite(answer), answer, "a finite number")
    return float(answer)


def _array(answer: Any, arguments: tuple[Any, ...], kind: type, what: str) -> Any:
    rows = arguments[-1]
    array = np.asarray(answer) if len(rows) or not isinstance(answer, Sized) else np.zeros(0, kind)
    fits = array.shape == (len(rows),) and array.dtype.kind in ("b" if kind is np.bool_ else "biuf")
    _use(fits and (kind is np.bool_ or np.isfinite(array).all()), answer, f"{len(rows)} {what}")
    return array.astype(kind, copy=False)


def _groups(answer: Any, arguments: tuple[Any, ...]) -> Any:
    _use(isinstance(answer, Iterable), answer, "pairs of a Rejection and rows")
    groups = []
    for pair in answer:
        valid = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Rejection)
        _use(valid, pair, "a Rejection and rows")
        _readable(pair[0])
        groups.append((pair[0], np.asarray(pair[1], dtype=np.intp)))
    rows = np.sort(np.concatenate([some for _, some in groups])) if groups else np.zeros(0, np.intp)
    if not np.isin(rows, arguments[-1]).all():
        raise ValueError(f"rows {_text(rows)}; use those that were asked about")
    return groups


def _key(answer: Any, _: tuple[Any, ...]) -> Any:
    _use(isinstance(answer, tuple) and answer, answer, "a tuple with an element")
    return answer


def _nomination(answer: Any, _: tuple[Any, ...]) -> Any:
    if not (isinstance(answer, NotNominated) and isinstance(answer.message, str)):
        _use(isinstance(answer, Nomination), answer, "Nomination or NotNominated")
        names = all(isinstance(one, str) for one in (answer.node, *answer.victims))
        _use(names, answer, "the node's name and the victims' UIDs")
    return answer


def _work(answer: Any, _: tuple[Any, ...]) -> Any:
    valid = answer is None or isinstance(getattr(answer, "plugin", None), str)
    _use(valid, answer, "a value with the plugin's name as `plugin`, or None")
    return answer


def _hints(answer: Any, _: tuple[Any, ...]) -> Any:
    valid = isinstance(answer, Mapping) and all(
        isinstance(kind, ChangeKind) and callable(hint) for kind, hint in answer.items()
    )
    _use(valid, answer, "a mapping of ChangeKind to functions")
    return answer


def _truth(answer: Any, _: tuple[Any, ...]) -> bool:
    return bool(answer)


_mask: Final = partial(_array, kind=np.bool_, what="booleans")
_scores: Final = partial(_array, kind=np.float64, what="finite numbers")
_CHECKS: Final[Mapping[str, Check | None]] = {
    "pre_enqueue": _one_of(Rejection),
    "sort_key": _key,
    "pre_filter": _one_of(Rejection, Skip),
    "idle": _truth,
    "add_pod": None,
    "remove_pod": None,
    "filter": _one_of(Rejection),
    "feasible": _mask,
    "room": _mask,
    "rejections": _groups,
    "for_state": _truth,
    "passes_kind": _truth,
    "room_of_kind": _truth,
    "post_filter": _nomination,
    "pre_score": _one_of(Skip),
    "score": _number,
    "scores": _scores,
    "score_of_kind": _number,
    "normalize": _scores,
    "details": None,
    "reserve": _one_of(Rejection),
    "unreserve": None,
    "permit": _one_of(Rejection, Wait),
    "decides_with": None,
    "pre_bind_work": _work,
    "pre_bind": None,
    "bind": None,
    "post_bind": None,
    "hints": _hints,
}
"""Checks of the answers of a plugin's methods; None where any answer will do."""
