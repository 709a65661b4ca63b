"""Rules on environment variables, and on the downward API that they use."""

from collections.abc import Iterator

from corelane import names, quantity
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import above, child
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

ENV_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
# What the downward API knows at all; a smaller set is allowed in each place.
_KNOWN_PATHS = {
    *ENV_PATHS,
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
}
_RESOURCES = tuple(
    f"{column}.{name}" for column in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_SIZES = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
_DIVISORS = {
    "cpu": ("1m and 1", ("1m", "1"), "cpu"),
    "memory": (_SIZES, tuple(_SIZES.split(", ")), "memory"),
    "ephemeral-storage": (_SIZES, tuple(_SIZES.split(", ")), "local ephemeral storage"),
    "hugepages": (_SIZES, tuple(_SIZES.split(", ")), "hugepages"),
}
_SOURCES = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_ONE_AT_A_TIME = "may not have more than one field specified at a time"


@rule("value-from")
def _value_from(env: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    source, where = env.get("valueFrom"), child(path, "valueFrom")
    if source is None:
        return
    if not source:
        yield causes.invalid(where, "", f"must specify one of: {_SOURCES}")
    elif env.get("value"):
        yield causes.invalid(where, "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield causes.invalid(where, "", _ONE_AT_A_TIME)


@rule("env-from")
def _env_from(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    count = ("configMapRef" in source) + ("secretRef" in source)
    if count == 0:
        yield causes.invalid(above(path), "", "must specify one of: `configMapRef` or `secretRef`")
    if count > 1:
        yield causes.invalid(above(path), "", _ONE_AT_A_TIME)


@rule("env-field-ref")
def _env_field_ref(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if "fieldRef" in source:
        yield from _field_ref(source["fieldRef"], child(path, "fieldRef"), ENV_PATHS)


@rule("env-resource-ref")
def _env_resource_ref(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if "resourceFieldRef" in source:
        yield from _resource_ref(source["resourceFieldRef"], child(path, "resourceFieldRef"))


def _field_ref(reference: Object, path: str, allowed: tuple[str, ...]) -> Iterator[StatusCause]:
    """A path of the downward API: known at all, with a subscript where that is right, and allowed here."""
    name, text = child(path, "fieldPath"), reference.get("fieldPath", "")
    if not text:
        yield causes.required(name)
        return
    base, bracket, rest = text.partition("['")
    subscripted = bool(bracket) and rest.endswith("']")
    unknown = _unknown_path(reference.get("apiVersion", ""), base if subscripted else text, text, subscripted)
    if unknown:
        yield causes.invalid(name, text, f"error converting fieldPath: {unknown}")
    elif subscripted:
        key = rest.removesuffix("']")
        key = key.lower() if base == "metadata.annotations" else key
        yield from causes.all_invalid(path, key, names.qualified_name(key))
    elif text not in allowed:
        yield causes.not_supported(name, text, sorted(allowed))


def _unknown_path(version: str, base: str, text: str, subscripted: bool) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if subscripted and base not in {"metadata.annotations", "metadata.labels"}:
        return f"field label does not support subscript: {text}"
    return "" if base in _KNOWN_PATHS else f"field label not supported: {text}"


def _resource_ref(reference: Object, path: str) -> Iterator[StatusCause]:
    """A container's resource as the downward API gives it."""
    name = reference.get("resource", "")
    if not name:
        yield causes.required(child(path, "resource"))
    elif name not in _RESOURCES and not name.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield causes.not_supported(child(path, "resource"), name, _RESOURCES)
    yield from _divisor(name, reference.get("divisor", "0"), child(path, "divisor"))


def _divisor(name: str, divisor: str, path: str) -> Iterator[StatusCause]:
    kind = name.partition(".")[2]
    known = _DIVISORS.get("hugepages" if kind.startswith("hugepages-") else kind)
    if known and quantity.parse(divisor).nano and divisor not in known[1]:
        why = f"only divisor's values {known[0]} are supported with the {known[2]} resource"
        yield causes.invalid(path, name, why)
