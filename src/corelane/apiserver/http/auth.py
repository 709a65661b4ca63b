"""Authentication by bearer token, and authorization: administrators everything, others only discovery."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from corelane.apiserver import status_errors
from corelane.apiserver.api_requests import Target

MASTERS = "system:masters"
_DISCOVERY = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class User:
    """A name and its groups; members of `system:masters` may do everything."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def authenticate(header: str | None, tokens: Mapping[str, User]) -> User:
    """The user of an Authorization header; without a bearer token, the anonymous one.

    Raises StatusError 401 for a token that is not known.
    """
    parts = (header or "").strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
        return ANONYMOUS
    given = parts[1].encode(errors="surrogateescape")
    # every token is compared, so that the time taken does not depend on the tokens
    found = [user for known, user in tokens.items() if hmac.compare_digest(known.encode(), given)]
    if not found:
        raise status_errors.unauthorized()
    return found[0]


def authorize(user: User, target: Target) -> None:
    """Raises StatusError 403 when `user` may not do what `target` says."""
    if MASTERS in user.groups:
        return
    if not target.is_resource:
        _authorize_path(user, target)
        return
    resource = "/".join(filter(None, (target.resource, target.subresource)))
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = (
        f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    )
    raise status_errors.forbidden(target.resource, target.group, target.name, why)


def _authorize_path(user: User, target: Target) -> None:
    known = user != ANONYMOUS and target.verb == "get"
    if known and any(target.path == p or target.path.startswith(f"{p}/") for p in _DISCOVERY):
        return
    message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
    raise status_errors.StatusError(403, "Forbidden", message, {})
