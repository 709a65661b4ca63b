"""Rules on secrets: the size of the data, what each type requires, and what is immutable."""

import base64
from collections.abc import Callable, Iterator, Mapping

from corelane.embedded.apiserver.codec.json_reading import Float, ReadError, read_json
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, key
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule
from corelane.embedded.apiserver.validation.value_rules import config_keys

LARGEST = 1024 * 1024
_SERVICE_ACCOUNT = "kubernetes.io/service-account.name"
_REDACTED = "<secret contents redacted>"
_FIXED = "field is immutable when `immutable` is set"


@rule("secret-data")
def _secret_data(secret: Object, _path: str, _scope: Scope) -> Iterator[StatusCause]:
    data = secret.get("data") or {}
    yield from config_keys(data, "data")
    if sum(len(base64.b64decode(text or "")) for text in data.values()) > LARGEST:
        yield causes.too_long("data", LARGEST)
    required = _REQUIRED.get(secret.get("type", ""))
    if required:
        yield from required(secret, data)


def update(new: Object, old: Object) -> Iterator[StatusCause]:
    """The faults of a change: the type stays; of an immutable secret the data too."""
    yield from causes.unless_equal("type", new.get("type", ""), old.get("type", ""))
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _FIXED)
    if (new.get("data") or {}) != (old.get("data") or {}):
        yield causes.forbidden("data", _FIXED)


def _token(secret: Object, _data: Mapping[str, str]) -> Iterator[StatusCause]:
    if not (secret["metadata"].get("annotations") or {}).get(_SERVICE_ACCOUNT):
        yield causes.required(key(child("metadata", "annotations"), _SERVICE_ACCOUNT))


def _json_in(name: str) -> "_Rule":
    def check(_secret: Object, data: Mapping[str, str]) -> Iterator[StatusCause]:
        if name not in data:
            yield causes.required(key("data", name))
            return
        why = _not_an_object(base64.b64decode(data[name] or ""))
        if why:
            yield causes.invalid(key("data", name), _REDACTED, why)

    return check


def _not_an_object(raw: bytes) -> str:
    """Go's words for what is not a JSON object, "" for one."""
    try:
        found = read_json(raw)
    except ReadError as error:
        return str(error)
    kinds = {list: "array", str: "string", bool: "bool", int: "number", Float: "number"}
    if found is None or isinstance(found, dict):
        return ""
    return f"json: cannot unmarshal {kinds[type(found)]} into Go value of type map[string]interface {{}}"


def _basic(_secret: Object, data: Mapping[str, str]) -> Iterator[StatusCause]:
    if not {"username", "password"} & data.keys():
        yield from (causes.required(key("data", name)) for name in ("username", "password"))


def _ssh(_secret: Object, data: Mapping[str, str]) -> Iterator[StatusCause]:
    if not data.get("ssh-privatekey"):
        yield causes.required(key("data", "ssh-privatekey"))


def _tls(_secret: Object, data: Mapping[str, str]) -> Iterator[StatusCause]:
    yield from (causes.required(key("data", name)) for name in ("tls.crt", "tls.key") if name not in data)


_Rule = Callable[[Object, Mapping[str, str]], Iterator[StatusCause]]
_REQUIRED: dict[str, _Rule] = {
    "kubernetes.io/service-account-token": _token,
    "kubernetes.io/dockercfg": _json_in(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json_in(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic,
    "kubernetes.io/ssh-auth": _ssh,
    "kubernetes.io/tls": _tls,
}
