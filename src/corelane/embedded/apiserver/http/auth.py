"""Authentication by bearer token, authorization by upstream's default roles, and reviews of both."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes

_AUDIENCE = "https://kubernetes.default.svc"
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
            "*" in allowed or asked in allowed
            for allowed, asked in ((self.verbs, verb), (self.groups, group), (self.resources, resource))
        )


@dataclass(frozen=True, slots=True)
class PathRule:
    """Verbs on paths; a path may end in `*`."""

    verbs: tuple[str, ...]
    paths: tuple[str, ...]

    def allows(self, verb: str, path: str) -> bool:
        return ("*" in self.verbs or verb in self.verbs) and any(
            path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
            for pattern in self.paths
        )


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
    users = [user for text, user in tokens.items() if hmac.compare_digest(text.encode(), given)]
    return users[0] if users else None


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
    return MASTERS in user.groups or any(rule.allows(verb, group, name) for rule in rules_of(user)[0])


def path_allowed(user: User, verb: str, path: str) -> bool:
    return MASTERS in user.groups or any(rule.allows(verb, path) for rule in rules_of(user)[1])


def authorize(user: User, target: Target) -> None:
    """Raises StatusError 403 when `user` may not do what `target` says."""
    if not target.is_resource:
        if not path_allowed(user, target.verb, target.path):
            message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
            raise status_errors.StatusError(403, "Forbidden", message, {})
        return
    if resource_allowed(user, target.verb, target.group, target.resource, target.subresource):
        return
    resource = "/".join(filter(None, (target.resource, target.subresource)))
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = (
        f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    )
    raise status_errors.forbidden(target.resource, target.group, target.name, why)


# --- reviews


def answer_review(user: User, review: Object, now: str, tokens: Mapping[str, User] | None = None) -> Object:
    """Fill in a review's status; `tokens` are those that the server knows. Raises StatusError."""
    if review["kind"] == "TokenReview":
        # A token is good for the API server alone, whatever other audiences are asked for.
        token, audiences = review["spec"].get("token", ""), review["spec"].get("audiences") or [_AUDIENCE]
        if not token:
            raise status_errors.bad_request("token is required for TokenReview in authentication")
        owner = user_of(token, tokens or {}) if _AUDIENCE in audiences else None
        if owner is None:
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        return {**review, "status": {"authenticated": True, "user": info(owner), "audiences": [_AUDIENCE]}}
    return _ANSWERS[review["kind"]](user, review, now)


def _who(user: User, review: Object, now: str) -> Object:
    return {**review, "metadata": {"creationTimestamp": now}, "status": {"userInfo": info(user)}}


def _access(user: User, review: Object, _now: str) -> Object:
    """Selectors restrict the question, but no role here looks at them."""
    spec = review["spec"]
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        where = "spec.resourceAttributes" if path is None else "spec.nonResourceAttributes"
        cause = causes.invalid(
            where, path, "exactly one of resourceAttributes and nonResourceAttributes must be set"
        )
        raise status_errors.invalid("", "authorization.k8s.io", "", [cause])
    if path is not None:
        allowed = path_allowed(user, path.get("verb", ""), path.get("path", ""))
    else:
        names = (resource.get(name, "") for name in ("verb", "group", "resource", "subresource"))
        allowed = resource_allowed(user, *names)
    return {**review, "status": {"allowed": allowed}}


def _rules(user: User, review: Object, _now: str) -> Object:
    if not review["spec"].get("namespace"):
        raise status_errors.bad_request("no namespace on request")
    resources, paths = rules_of(user)
    status = {
        "resourceRules": [
            {"verbs": list(rule.verbs), "apiGroups": list(rule.groups), "resources": list(rule.resources)}
            for rule in resources
        ],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in paths
        ],
        "incomplete": False,
    }
    return {**review, "spec": {}, "status": status}


_ANSWERS: dict[str, Callable[[User, Object, str], Object]] = {
    "SelfSubjectReview": _who,
    "SelfSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
}
