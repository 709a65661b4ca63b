"""Lists at one revision, in pages that all show the same revision.

Continue tokens are upstream's (`storage/continue.go`): the first page's revision and the key to go on from.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from corelane.apiserver import api_requests, selector_syntax, status_errors
from corelane.apiserver.api_requests import ListOptions, Target
from corelane.apiserver.codec import conversion, wire
from corelane.apiserver.selector_syntax import Selectors
from corelane.apiserver.served_kinds import ServedKind
from corelane.apiserver.store import server_backend
from corelane.apiserver.store.server_backend import Backend
from corelane.apiserver.stored_objects import Compacted, StoredObject

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - not a secret, the name of a format
_TOO_OLD = "The resourceVersion for the provided list is too old."
_PAGE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
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
        if options.resource_version not in {"", "0"}:
            raise status_errors.bad_request("specifying resource version is not allowed when using continue")
        revision, start = _read_token(options.continuation)
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
        message = f'invalid resource version: resourceVersion: Invalid value: "{text}": {error}'
        raise status_errors.bad_request(message) from None


def _too_old(options: ListOptions, start: str) -> status_errors.StatusError:
    if not options.continuation:
        return status_errors.expired(_TOO_OLD)
    error = status_errors.expired(_PAGE_TOO_OLD)
    return replace(error, metadata={"continue": _token(-1, start)})


def _token(revision: int, start: str) -> str:
    document = {"v": _TOKEN_VERSION, "rv": revision, "start": start}
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        document = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        version, revision, start = document["v"], document.get("rv", 0), document.get("start", "")
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad_token(str(error)) from None
    if version != _TOKEN_VERSION or type(revision) is not int or not revision or not isinstance(start, str):
        why = f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})"
        raise _bad_token(why)
    if not start or ".." in start.split("/"):
        raise _bad_token("encoded start key empty")
    return revision, start


def _bad_token(why: str) -> status_errors.StatusError:
    return status_errors.bad_request(f"invalid continue token: continue key is not valid: {why}")


def check_selectable(kind: ServedKind, version: str, selection: Selectors) -> None:
    """Raises StatusError 400 for field labels that objects of this kind do not have."""
    if not selection.fields:
        return
    empty = wire.typed(kind, version, {"metadata": {}})
    known = conversion.selectable_fields(kind, empty).keys()
    plain = not kind.custom and set(known) <= {"metadata.name", "metadata.namespace"}
    try:
        selector_syntax.check_fields(selection.fields, known, strict_list=plain)
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
