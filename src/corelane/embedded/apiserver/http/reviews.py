"""Answers to reviews: who the caller is, what the caller may do, and to which user a token belongs."""

from collections.abc import Callable, Mapping

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.http import auth
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes

_AUDIENCE = "https://kubernetes.default.svc"


def answer(user: User, review: Object, now: str, tokens: Mapping[str, User] | None = None) -> Object:
    """Fill in a review's status; `tokens` are those that the server knows. Raises StatusError."""
    if review["kind"] == "TokenReview":
        return _token(review, tokens or {})
    return _ANSWERS[review["kind"]](user, review, now)


def _who(user: User, review: Object, now: str) -> Object:
    return {**review, "metadata": {"creationTimestamp": now}, "status": {"userInfo": auth.info(user)}}


def _token(review: Object, tokens: Mapping[str, User]) -> Object:
    """A token is good for the API server alone, whatever other audiences are asked for."""
    token, audiences = review["spec"].get("token", ""), review["spec"].get("audiences") or [_AUDIENCE]
    if not token:
        raise status_errors.bad_request("token is required for TokenReview in authentication")
    user = auth.user_of(token, tokens) if _AUDIENCE in audiences else None
    if user is None:
        return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
    return {**review, "status": {"authenticated": True, "user": auth.info(user), "audiences": [_AUDIENCE]}}


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
        allowed = auth.path_allowed(user, path.get("verb", ""), path.get("path", ""))
    else:
        names = (resource.get(name, "") for name in ("verb", "group", "resource", "subresource"))
        allowed = auth.resource_allowed(user, *names)
    return {**review, "status": {"allowed": allowed}}


def _rules(user: User, review: Object, _now: str) -> Object:
    if not review["spec"].get("namespace"):
        raise status_errors.bad_request("no namespace on request")
    resources, paths = auth.rules_of(user)
    status = {
        "resourceRules": [
            {"verbs": list(one.verbs), "apiGroups": list(one.groups), "resources": list(one.resources)}
            for one in resources
        ],
        "nonResourceRules": [{"verbs": list(one.verbs), "nonResourceURLs": list(one.paths)} for one in paths],
        "incomplete": False,
    }
    return {**review, "spec": {}, "status": status}


_ANSWERS: dict[str, Callable[[User, Object, str], Object]] = {
    "SelfSubjectReview": _who,
    "SelfSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
}
