"""Kubernetes' own kind of error: a `Status` object that says what was wrong with a request, and where.

Reasons, codes and texts are those of upstream's apimachinery (`pkg/api/errors`): clients branch on them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One fault of one field: `reason` is upstream's cause type, `message` does not repeat `field`."""

    reason: str
    message: str
    field: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def body(self) -> dict[str, str]:
        named = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in named.items() if value}


@dataclass(slots=True)
class StatusError(Exception):
    """An answer other than success.

    `details` None leaves the key out and `{}` writes it empty: upstream does the one or the other by case.
    """

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """The Status object, its keys in upstream's order."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1"}
        body |= {"metadata": dict(self.metadata), "status": "Failure"}
        if self.message:
            body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return body | {"code": self.code}


def details(
    name: str = "",
    group: str = "",
    kind: str = "",
    uid: str = "",
    causes: Iterable[StatusCause] = (),
    retry_after: int = 0,
) -> dict[str, Any]:
    """A Status' `details`, empty members left out, in upstream's order."""
    members = {
        "name": name,
        "group": group,
        "kind": kind,
        "uid": uid,
        "causes": [cause.body() for cause in causes],
        "retryAfterSeconds": retry_after,
    }
    return {key: value for key, value in members.items() if value}


def quoted(text: str) -> str:
    """A text in quotes, as JSON."""
    return json.dumps(text, ensure_ascii=False)


def qualified(resource: str, group: str) -> str:
    """`pods`, `leases.coordination.k8s.io`."""
    return f"{resource}.{group}" if group else resource


def success(**members: Any) -> dict[str, Any]:
    """A Status that says an operation went well; `members` are `details` or `code`."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **members}


def not_found(resource: str, group: str, name: str) -> StatusError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, details(name, group, resource))


def no_such_resource() -> StatusError:
    """The path names no resource that is served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: str, group: str, name: str, *, generated: bool = False) -> StatusError:
    """409; where the name was `generated` the client may simply try again."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    if generated:
        message += ", the server was not able to generate a unique name for the object"
    about = details(name, group, resource, retry_after=int(generated))
    return StatusError(409, "AlreadyExists", message, about)


def conflict(resource: str, group: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details(name, group, resource))


def modified(resource: str, group: str, name: str) -> StatusError:
    """The optimistic lock did not hold: the object has another resourceVersion by now."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, group, name, why)


def aggregate(causes: Iterable[StatusCause]) -> str:
    """Upstream's text for several faults: one plain, more as `[a, b]`, the same text only once."""
    texts = list(dict.fromkeys(map(str, causes)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid(kind: str, group: str, name: str, causes: Iterable[StatusCause]) -> StatusError:
    """422 for an object of `kind` whose fields break rules."""
    faults = list(causes)
    message = f'{qualified(kind, group)} "{name}" is invalid: {aggregate(faults)}'
    return StatusError(422, "Invalid", message, details(name, group, kind, causes=faults))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    resource: str, group: str, name: str, why: str, causes: Iterable[StatusCause] = ()
) -> StatusError:
    subject = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return StatusError(
        403, "Forbidden", f"{subject} is forbidden: {why}", details(name, group, resource, causes=causes)
    )


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_verb(resource: str, group: str, verb: str) -> StatusError:
    """A custom resource knows the verb of no such method."""
    message = f'{verb} is not supported on resources of kind "{qualified(resource, group)}"'
    return StatusError(405, "MethodNotAllowed", message, details(group=group, kind=resource))


def not_acceptable(media_types: Iterable[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(media_types)}"
    return StatusError(406, "NotAcceptable", message)


def expired(message: str) -> StatusError:
    """410: what the client wants to go on from is no longer kept."""
    return StatusError(410, "Expired", message)


def too_large(message: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(media_types: Iterable[str]) -> StatusError:
    accepted = ", ".join(media_types)
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


def unprocessable(message: str) -> StatusError:
    """422 without a field: a patch that cannot be carried out."""
    return StatusError(422, "Invalid", message, {})


def internal(message: str) -> StatusError:
    """500 in upstream's form for a bare error: neither reason nor details."""
    return StatusError(500, "", message)


def not_served(message: str) -> StatusError:
    """A part of the Kubernetes API that this server leaves out."""
    return StatusError(501, "NotImplemented", message, {})


def resource_version_too_large(requested: int, current: int) -> StatusError:
    """504: the client names a resourceVersion from the future."""
    text = "Too large resource version"
    found = details(causes=[StatusCause("ResourceVersionTooLarge", text)], retry_after=1)
    message = f"Timeout: {text}: {requested}, current: {current}"
    return StatusError(504, "Timeout", message, found, {"Retry-After": "1"})
