"""Lists at one revision, in pages that all show the same revision.

Continue tokens are upstream's (`storage/continue.go`): the first page's revision and the key to go on from.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from corelane.embedded.apiserver import api_requests, selector_syntax, status_errors
from corelane.embedded.apiserver.api_requests import ListOptions, Target
from corelane.embedded.apiserver.codec import conversion, wire
from corelane.embedded.apiserver.selector_syntax import Selectors
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Compacted, StoredObject

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - not a secret, the name of a format
_PLACE = {"metadata.name", "metadata.namespace"}
_TOO_OLD = "The resourceVersion for the provided list is too old."
_PAGE_TOO_OLD = (
    "The provided continue parameter is too old. Start a new list without it, or use the continue token of "
    "this response for the rest of the list, which may differ from the first page by later changes."
)


@dataclass(frozen=True, slots=True)
class ListPage:
    """Records of a list and its ListMeta."""

    records: Sequence[StoredObject]
    meta: dict[str, Any]


def page(backend: Backend, target: Target, options: ListOptions) -> ListPage:
    """The records that a list request asks for. Raises StatusError 400, 410 or 504."""
    kind = server_backend.kind_of(target)
    check_selectable(kind, target.version, options.selection)
    at, start, limit = _position(backend, options)
    try:
        found = backend.store.range(kind.stored, target.prefix, at, start)
    except Compacted:
        raise _too_old(options, start) from None
    chosen = select(kind, target.version, options.selection, found, limit + 1 if limit else None)
    meta: dict[str, Any] = {"resourceVersion": str(backend.store.revision if at is None else at)}
    if not limit or len(chosen) <= limit:
        return ListPage(chosen[:], meta)
    last = chosen[limit - 1].key[len(target.prefix) :]
    meta["continue"] = _token(int(meta["resourceVersion"]), last + "\0")
    if options.selection.empty:
        meta["remainingItemCount"] = len(chosen) - limit
    return ListPage(chosen[:limit], meta)


def _position(backend: Backend, options: ListOptions) -> tuple[int | None, str, int]:
    """The revision to list at (None: now), the key to begin with, and how many."""
    limit = max(options.limit, 0)
    if options.continuation:
        revision, start = _read_token(options.continuation)
        if options.resource_version not in {"", "0"}:
            raise status_errors.bad_request("specifying resource version is not allowed when using continue")
        return (None if revision < 0 else revision), start, limit
    wanted = _revision(options.resource_version)
    if wanted > backend.store.revision:
        raise status_errors.resource_version_too_large(wanted, backend.store.revision)
    exact = options.match == "Exact" or (limit and not options.match)
    if wanted and exact:
        return wanted, "", limit
    # what may come from a cache comes whole, as upstream's cache gives it
    return None, "", 0 if options.resource_version == "0" else limit


def _revision(text: str) -> int:
    try:
        return api_requests.revision(text) if text else 0
    except ValueError as error:
        raise status_errors.bad_request(str(error)) from None


def _too_old(options: ListOptions, start: str) -> status_errors.StatusError:
    if not options.continuation:
        return status_errors.expired(_TOO_OLD)
    error = status_errors.expired(_PAGE_TOO_OLD)
    return replace(error, metadata={"continue": _token(-1, start)})


class _Token(msgspec.Struct):
    """A continue token: at which revision and key a list goes on; revision -1 is the newest."""

    v: str
    rv: int
    start: str


def _token(revision: int, start: str) -> str:
    text = msgspec.json.encode(_Token(_TOKEN_VERSION, revision, start))
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, str]:
    """Return a token's revision and start. Raises StatusError 400."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _bad_token(str(error)) from None
    if token.v != _TOKEN_VERSION or not token.rv or not token.start:
        raise _bad_token(f"v must be {_TOKEN_VERSION}, rv and start must be set")
    if not {"", ".", ".."}.isdisjoint(token.start.removeprefix("/").split("/")):
        raise _bad_token(f"start is not a key: {token.start}")
    return token.rv, token.start


def _bad_token(why: str) -> status_errors.StatusError:
    return status_errors.bad_request(f"invalid continue token, list again without it: {why}")


def check_selectable(kind: ServedKind, version: str, selection: Selectors) -> None:
    """Raises StatusError 400 for field labels that objects of this kind do not have."""
    if not selection.fields:
        return
    empty = wire.typed(kind, version, {"metadata": {}})
    known = set(conversion.selectable_fields(kind, empty))
    if not kind.custom and known <= _PLACE:
        known = _PLACE
    try:
        selector_syntax.check_fields(selection.fields, known)
    except ValueError as error:
        raise status_errors.bad_request(str(error)) from None


def select(
    kind: ServedKind,
    version: str,
    selection: Selectors,
    found: Sequence[StoredObject],
    most: int | None = None,
) -> Sequence[StoredObject]:
    """Return the selected records; with a selection not more than `most`."""
    if selection.empty:
        return found
    return list(islice((record for record in found if matches(kind, version, selection, record)), most))


def matches(kind: ServedKind, version: str, selection: Selectors, record: StoredObject) -> bool:
    """Whether a record is selected; the store keeps the labels of the stored form only."""
    if not selection.fields or kind is wire.stored_kind(kind):
        return selection.matches(record.labels, record.fields)
    obj = conversion.convert(kind, record.object(), version)
    return selection.matches(record.labels, conversion.selectable_fields(kind, obj))
