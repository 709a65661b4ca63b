"""Impersonation: a request as another user, by headers (`kubectl --as`).

After apiserver's `pkg/endpoints/filters/impersonation` (KEP-5284). Administrators may act as any user. Other
users are refused by the first mode that applies: nodes, service accounts and other users have modes of their
own, and where none applies each name needs the verb `impersonate`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDict, CIMultiDictProxy

from corelane import names
from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.http import auth
from corelane.embedded.apiserver.http.auth import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

_USER: Final = "Impersonate-User"
_GROUP: Final = "Impersonate-Group"
_UID: Final = "Impersonate-Uid"
_EXTRA: Final = "impersonate-extra-"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_NODE: Final = "system:node:"
_NODES: Final = "system:nodes"
_GROUP_OF_USERS: Final = "authentication.k8s.io"

Headers = CIMultiDict[str] | CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class _Part:
    """One thing that is asked for; `key` is that of an extra value."""

    kind: str
    name: str
    namespace: str = ""
    key: str = ""

    @property
    def versioned(self) -> bool:
        return self.kind in {"UserExtra", "UID"}


_RESOURCES: Final = {
    "User": "users",
    "ServiceAccount": "serviceaccounts",
    "Group": "groups",
    "UserExtra": "userextras",
    "UID": "uids",
}


def acting_user(headers: Headers, user: User, target: Target) -> User:
    """Return the user that a request of `user` for `target` is carried out as.

    Raises StatusError 403 where `user` may not impersonate, 400 for groups, a UID or extra values without a
    user.
    """
    parts = list(_parts(headers))
    if not parts:
        return user
    if not headers.get(_USER):
        shown = _shown(parts)
        raise status_errors.bad_request(f"requested {shown} without impersonating a user name")
    mode = _mode(headers[_USER], parts)
    if mode:
        auth.authorize(user, replace(target, verb=f"impersonate-on:{mode}:{target.verb}"))
    else:
        for part in parts:
            _authorize(user, part)
    return _impersonated(parts, is_node=mode == "arbitrary-node")


def _mode(name: str, parts: list[_Part]) -> str:
    """Return the mode in which a user is impersonated, or "" for the verb `impersonate` alone."""
    node = name.startswith(_NODE) and not names.dns_subdomain(name.removeprefix(_NODE))
    if not node and not _service_account(name)[0]:
        return "user-info"
    if len(parts) > 1:
        return ""
    return "arbitrary-node" if node else "serviceaccount"


def _shown(parts: list[_Part]) -> str:
    """Show what was asked for without a user, as Go's `%#v` does."""
    groups = [quoted(part.name) for part in parts if part.kind == "Group"]
    uid = next((part.name for part in parts if part.kind == "UID"), "")
    shown = ", ".join(
        f"{quoted(key)}:{_go_strings(map(quoted, values))}" for key, values in sorted(_extra(parts).items())
    )
    fields = (
        'Name:""',
        f"UID:{quoted(uid)}",
        f"Groups:{_go_strings(groups)}",
        f"Extra:map[string][]string{f'{{{shown}}}' if shown else '(nil)'}",
    )
    return f"&user.DefaultInfo{{{', '.join(fields)}}}"


def _go_strings(quoted: Iterable[str]) -> str:
    shown = ", ".join(quoted)
    return f"[]string{{{shown}}}" if shown else "[]string(nil)"


def _extra(parts: list[_Part]) -> dict[str, list[str]]:
    extra = defaultdict(list)
    for part in parts:
        if part.kind == "UserExtra":
            extra[part.key].append(part.name)
    return extra


def _parts(headers: Headers) -> Iterator[_Part]:
    name = headers.get(_USER, "")
    if name:
        namespace, account = _service_account(name)
        yield _Part("ServiceAccount", account, namespace) if account else _Part("User", name)
    for group in headers.getall(_GROUP, []):
        yield _Part("Group", group)
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            yield _Part("UserExtra", value, key=unquote(header[len(_EXTRA) :].lower()))
    if headers.get(_UID):
        yield _Part("UID", headers[_UID])


def _service_account(name: str) -> tuple[str, str]:
    """Return namespace and name of the service account that a user name stands for, or empty strings."""
    namespace, _, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not name.startswith(_SERVICE_ACCOUNT) or not namespace or not account or ":" in account:
        return "", ""
    return namespace, account


def _authorize(user: User, part: _Part) -> None:
    resource, group = _RESOURCES[part.kind], _GROUP_OF_USERS if part.versioned else ""
    if auth.resource_allowed(user, "impersonate", group, resource, part.key):
        return
    where = f'in the namespace "{part.namespace}"' if part.namespace else "at the cluster scope"
    full = "/".join(filter(None, (resource, part.key)))
    why = f'User "{user.name}" cannot impersonate resource "{full}" in API group "{group}" {where}'
    raise status_errors.forbidden(resource, group, part.name, why)


def _impersonated(parts: list[_Part], *, is_node: bool) -> User:
    first = parts[0]
    name, groups = first.name, [part.name for part in parts if part.kind == "Group"]
    if is_node:
        groups = [_NODES]
    if first.kind == "ServiceAccount":
        name = f"{_SERVICE_ACCOUNT}{first.namespace}:{first.name}"
        groups = groups or ["system:serviceaccounts", f"system:serviceaccounts:{first.namespace}"]
    ensured = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if ensured not in groups and UNAUTHENTICATED not in groups:
        groups.append(ensured)
    uid = next((part.name for part in parts if part.kind == "UID"), "")
    values = tuple((key, tuple(names)) for key, names in sorted(_extra(parts).items()))
    return User(name, tuple(groups), uid, values)
