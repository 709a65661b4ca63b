"""Representation of responses and bodies: the headers Accept and Content-Type.

Answers are JSON or YAML, whole, as Table or as metadata alone; bodies may be protobuf too.
"""

from collections.abc import Callable, Iterator, Mapping

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec.wire import FORMS, JSON, YAML, Representation
from corelane.embedded.apiserver.status_errors import StatusError

PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, YAML, PROTOBUF)
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_CUSTOM_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)

_AGGREGATED = {"as": "APIGroupDiscoveryList", "g": "apidiscovery.k8s.io", "v": "v2"}
_TRANSFORMS = frozenset(_AGGREGATED)


def representation(accept: str | None) -> Representation:
    """The best form that `accept` allows. Raises StatusError 406."""
    return _best(accept, _form)


def plain(accept: str | None) -> Representation:
    """The best media type for a document that has one form only. Raises StatusError 406."""
    return _best(accept, lambda media, asked: None if _TRANSFORMS & asked.keys() else Representation(media))


def aggregated_discovery(accept: str | None) -> Representation | None:
    """The media type in which an Accept header asks for aggregated discovery (v2), None if it does not.

    Plain documents in the same header do not count, whatever their quality.
    """

    def aggregated(media: str, asked: Mapping[str, str]) -> Representation | None:
        is_it = {name: asked.get(name) for name in _TRANSFORMS} == _AGGREGATED
        return Representation(media) if is_it else None

    try:
        return _best(accept, aggregated)
    except StatusError:
        return None


def _best(
    accept: str | None, form: Callable[[str, Mapping[str, str]], Representation | None]
) -> Representation:
    """The first form of a served media type among the clauses. Raises StatusError 406."""
    for media, parameters in _clauses(accept or "*/*"):
        for served in (JSON, YAML):
            if _covers(media, served) and (found := form(served, parameters)):
                return found
    raise status_errors.not_acceptable(MEDIA_TYPES)


def aggregated_type(wanted: Representation) -> str:
    """The Content-Type of aggregated discovery."""
    return ";".join((wanted.media, *(f"{name}={_AGGREGATED[name]}" for name in ("g", "v", "as"))))


def for_error(accept: str | None) -> str:
    """The media type for an error: YAML if that is what was asked for, and not as a Table, else JSON."""
    try:
        return plain(accept).media
    except StatusError:
        return JSON


def body_type(content_type: str | None) -> str:
    """The type of a request's body, JSON if none is given. Raises StatusError 415."""
    media = bare(content_type) or JSON
    if media not in MEDIA_TYPES:
        raise status_errors.unsupported_media_type(MEDIA_TYPES)
    return media


def patch_type(content_type: str | None, *, custom: bool) -> str:
    """The bare media type of a patch. Raises StatusError 415; `custom` resources take no strategic patch."""
    media = bare(content_type)
    if custom and media not in _CUSTOM_PATCHES:
        raise status_errors.unsupported_media_type(_CUSTOM_PATCHES)
    if media not in PATCHES:
        raise status_errors.unsupported_media_type(PATCHES)
    return media


def bare(header: str | None) -> str:
    """A media type without its parameters."""
    return (header or "").partition(";")[0].strip().lower()


def _clauses(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Media ranges with their parameters, best first: by q, then the exact before the wild."""
    parsed = [_clause(text) for text in accept.split(",") if text.strip()]
    yield from sorted(parsed, key=lambda item: (-_quality(item[1]), item[0].count("*")))


def _clause(text: str) -> tuple[str, dict[str, str]]:
    media, *rest = text.split(";")
    pairs = (part.partition("=") for part in rest)
    return media.strip().lower(), {name.strip(): value.strip() for name, _, value in pairs}


def _quality(parameters: Mapping[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 1.0


def _covers(wild: str, media: str) -> bool:
    return wild in {media, "*/*"} or wild == f"{media.partition('/')[0]}/*"


def _form(media: str, parameters: Mapping[str, str]) -> Representation | None:
    """Return the representation for a clause's `as`, `g` and `v`, None if it is unavailable."""
    name = parameters.get("as", "")
    if not name:
        return Representation(media)
    version = parameters.get("v", "")
    if name not in FORMS or parameters.get("g") != "meta.k8s.io" or version not in {"v1", "v1beta1"}:
        return None
    return Representation(media, FORMS[name], version)
