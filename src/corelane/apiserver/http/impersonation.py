"""Impersonation: a request as another user, by headers (`kubectl --as`).

After apiserver's `pkg/endpoints/filters/impersonation.go`. Each name needs the verb `impersonate`.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDict, CIMultiDictProxy

from corelane.apiserver import status_errors
from corelane.apiserver.http import auth
from corelane.apiserver.http.auth import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

_USER: Final = "Impersonate-User"
_GROUP: Final = "Impersonate-Group"
_UID: Final = "Impersonate-Uid"
_EXTRA: Final = "impersonate-extra-"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
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

    def __str__(self) -> str:
        version = f"{_GROUP_OF_USERS}/v1" if self.versioned else ""
        return f"{{{' '.join((self.kind, self.namespace, self.name, '', version, '', self.key))}}}"


_RESOURCES: Final = {
    "User": "users",
    "ServiceAccount": "serviceaccounts",
    "Group": "groups",
    "UserExtra": "userextras",
    "UID": "uids",
}


def acting_user(headers: Headers, user: User) -> User:
    """Return the user that a request of `user` is carried out as.

    Raises StatusError 403 where `user` may not impersonate, 500 for groups, a UID or extra values without a
    user.
    """
    parts = list(_parts(headers))
    if not parts:
        return user
    if not headers.get(_USER):
        asked = " ".join(map(str, parts))
        raise status_errors.internal(
            f"Internal error occurred: requested [{asked}] without impersonating a user"
        )
    for part in parts:
        _authorize(user, part)
    return _impersonated(parts)


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


def _impersonated(parts: list[_Part]) -> User:
    first = parts[0]
    name, groups = first.name, [part.name for part in parts if part.kind == "Group"]
    if first.kind == "ServiceAccount":
        name = f"{_SERVICE_ACCOUNT}{first.namespace}:{first.name}"
        groups = groups or ["system:serviceaccounts", f"system:serviceaccounts:{first.namespace}"]
    if not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups.append(UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED)
    extra = defaultdict(list)
    for part in parts:
        if part.kind == "UserExtra":
            extra[part.key].append(part.name)
    uid = next((part.name for part in parts if part.kind == "UID"), "")
    values = tuple((key, tuple(names)) for key, names in sorted(extra.items()))
    return User(name, tuple(groups), uid, values)
