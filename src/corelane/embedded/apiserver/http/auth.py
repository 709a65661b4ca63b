"""Authentication by bearer token, and authorization by upstream's default roles."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.api_requests import Target

MASTERS = "system:masters"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """Verbs on resources of API groups; `*` is any."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]

    def allows(self, verb: str, group: str, resource: str) -> bool:
        return all(
            "*" in known or asked in known
            for known, asked in ((self.verbs, verb), (self.groups, group), (self.resources, resource))
        )


@dataclass(frozen=True, slots=True)
class PathRule:
    """Verbs on paths; a path may end in `*`."""

    verbs: tuple[str, ...]
    paths: tuple[str, ...]

    def allows(self, verb: str, path: str) -> bool:
        return ("*" in self.verbs or verb in self.verbs) and any(_covers(one, path) for one in self.paths)


def _covers(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


# Upstream's default roles: system:basic-user, system:public-info-viewer, system:discovery, cluster-admin.
_BASIC = (
    ResourceRule(
        ("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    ),
    ResourceRule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)
_PUBLIC = PathRule(("get",), ("/healthz", "/livez", "/readyz", "/version", "/version/"))
_DISCOVERY = PathRule(
    ("get",),
    (
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ),
)
_ALL_RESOURCES, _ALL_PATHS = ResourceRule(("*",), ("*",), ("*",)), PathRule(("*",), ("*",))


@dataclass(frozen=True, slots=True)
class User:
    """A name and its groups; members of `system:masters` may do everything."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def authenticate(header: str | None, tokens: Mapping[str, User]) -> User:
    """The user of an Authorization header; without a bearer token, the anonymous one.

    Raises StatusError 401 for a token that is not known.
    """
    parts = (header or "").strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
        return ANONYMOUS
    user = user_of(parts[1], tokens)
    if user is None:
        raise status_errors.unauthorized()
    return user


def user_of(token: str, tokens: Mapping[str, User]) -> User | None:
    """The user that a token belongs to, or None."""
    given = token.encode(errors="surrogateescape")
    # every token is compared, so that the time taken does not depend on the tokens
    found = [user for known, user in tokens.items() if hmac.compare_digest(known.encode(), given)]
    return found[0] if found else None


def groups_of(user: User) -> tuple[str, ...]:
    """The user's groups, with the one that every authenticated user is in."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user.groups
    return (*user.groups, AUTHENTICATED)


def info(user: User) -> dict[str, object]:
    """The user as reviews show it."""
    return {"username": user.name, "groups": list(groups_of(user))}


def refuse_impersonation(headers: Mapping[str, str]) -> None:
    """Raise StatusError 403 for a request as another user (`kubectl --as`): it must not run as this one."""
    given = next((name for name in headers if name.lower().startswith("impersonate-")), None)
    if given:
        message = (
            f"header {given}: corelane's API server does not serve impersonation; send the request without it"
        )
        raise status_errors.StatusError(403, "Forbidden", message, {})


def rules_of(user: User) -> tuple[list[ResourceRule], list[PathRule]]:
    """Everything that the user may do."""
    resources: list[ResourceRule] = []
    paths: list[PathRule] = []
    groups = groups_of(user)
    if AUTHENTICATED in groups:
        resources, paths = [*_BASIC], [_PUBLIC, _DISCOVERY]
    elif UNAUTHENTICATED in groups:
        paths = [_PUBLIC]
    if MASTERS in user.groups:
        resources.append(_ALL_RESOURCES)
        paths.append(_ALL_PATHS)
    return resources, paths


def resource_allowed(user: User, verb: str, group: str, resource: str, subresource: str = "") -> bool:
    name = "/".join(filter(None, (resource, subresource)))
    return MASTERS in user.groups or any(one.allows(verb, group, name) for one in rules_of(user)[0])


def path_allowed(user: User, verb: str, path: str) -> bool:
    return MASTERS in user.groups or any(one.allows(verb, path) for one in rules_of(user)[1])


def authorize(user: User, target: Target) -> None:
    """Raises StatusError 403 when `user` may not do what `target` says."""
    if not target.is_resource:
        _authorize_path(user, target)
        return
    if resource_allowed(user, target.verb, target.group, target.resource, target.subresource):
        return
    resource = "/".join(filter(None, (target.resource, target.subresource)))
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = (
        f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    )
    raise status_errors.forbidden(target.resource, target.group, target.name, why)


def _authorize_path(user: User, target: Target) -> None:
    if path_allowed(user, target.verb, target.path):
        return
    message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
    raise status_errors.StatusError(403, "Forbidden", message, {})
