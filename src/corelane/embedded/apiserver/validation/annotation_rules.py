"""Rules on annotations that pods give a meaning to, some of them older than the fields that replaced them."""

from collections.abc import Iterator

from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import decoding, json_reading
from corelane.embedded.apiserver.codec.decoding import DecodeError, StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.schema.pod_spec import TOLERATION
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.pod_rules import each_container
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, walk

APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
PATH = "metadata.annotations"
_MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_LOCAL = "localhost/"
_TYPES = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
_SECCOMP_TYPES = {**_TYPES, "docker/default": "RuntimeDefault"}


def rules(pod: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodSpecificAnnotations`."""
    found, spec = pod["metadata"].get("annotations", {}), pod["spec"]
    if _MIRROR in found and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        yield causes.invalid(key(PATH, _MIRROR), found[_MIRROR], why)
    if found.get(_TOLERATIONS):
        yield from _tolerations(found[_TOLERATIONS], pod)
    if not _is_int32(found.get(_DELETION_COST, "0")):
        why = "must be a 32bit integer"
        yield causes.invalid(key(PATH, _DELETION_COST), found[_DELETION_COST], why)
    for name in sorted(found):
        if name == _SECCOMP or name.startswith(_SECCOMP_CONTAINER):
            yield from _seccomp(found[name], child(PATH, name))
    containers = {container.get("name", "") for container, _ in each_container(spec, "spec")}
    for name in sorted(found):
        if name.startswith(APP_ARMOR):
            yield from _app_armor(name, found[name], containers)


def agree_with_fields(pod: Object) -> Iterator[StatusCause]:
    """Profiles that annotations name are those of the fields, where a new pod has both."""
    found, spec = pod["metadata"].get("annotations", {}), pod["spec"]
    own = spec.get("securityContext", {})
    profile = own.get("seccompProfile")
    if profile is not None and _SECCOMP in found:
        where = child("spec", "securityContext", "seccompProfile")
        yield from _mismatch("seccomp", found[_SECCOMP], profile, where)
    for container, path in each_container(spec, "spec"):
        profile = container.get("securityContext", {}).get("seccompProfile")
        name = _SECCOMP_CONTAINER + container.get("name", "")
        if profile is not None and name in found:
            where = child(path, "securityContext", "seccompProfile")
            yield from _mismatch("seccomp", found[name], profile, where)
    if spec.get("os", {}).get("name") == "windows":
        return
    for container, path in each_container(spec, "spec"):
        profile = container.get("securityContext", {}).get("appArmorProfile", own.get("appArmorProfile"))
        name = APP_ARMOR + container.get("name", "")
        if profile is not None and name in found:
            where = child(path, "securityContext", "appArmorProfile")
            yield from _mismatch("apparmor", found[name], profile, where)


def app_armor_profile(annotation: str) -> Object | None:
    """The profile that an annotation stands for; None where it makes no sense."""
    if annotation in _TYPES:
        return {"type": _TYPES[annotation]}
    local = annotation.removeprefix(_LOCAL)
    if not local or local == annotation:
        return None
    return {"type": "Localhost", "localhostProfile": local}


def _mismatch(what: str, annotation: str, profile: Object, path: str) -> list[StatusCause]:
    types = _SECCOMP_TYPES if what == "seccomp" else _TYPES
    local, kind = annotation.startswith(_LOCAL), profile.get("type", "")
    if kind in {"Localhost", *types.values()} and kind != ("Localhost" if local else types.get(annotation)):
        return [causes.forbidden(child(path, "type"), f"{what} type in annotation and field must match")]
    if local and kind == "Localhost" and profile.get("localhostProfile") != annotation.removeprefix(_LOCAL):
        why = f"{what} profile in annotation and field must match"
        return [causes.forbidden(child(path, "localhostProfile"), why)]
    return []


def _seccomp(profile: str, path: str) -> list[StatusCause]:
    if profile in _SECCOMP_TYPES:
        return []
    if not profile.startswith(_LOCAL):
        return [causes.invalid(path, profile, "must be a valid seccomp profile")]
    local = profile.removeprefix(_LOCAL)
    return causes.all_invalid(path, local, formats.relative_path(local))


def _app_armor(name: str, profile: str, containers: set[str]) -> Iterator[StatusCause]:
    container = name.removeprefix(APP_ARMOR)
    if container not in containers:
        yield causes.invalid(key(PATH, name), container, "container not found")
    if profile and profile not in _TYPES and not profile.startswith(_LOCAL):
        why = f"invalid AppArmor profile name: {quoted(profile)}"
        yield causes.invalid(key(PATH, name), profile, why)


def _tolerations(text: str, pod: Object) -> Iterator[StatusCause]:
    """Tolerations as JSON, from before they had a field."""
    try:
        tree = json_reading.read_json(text.encode())
        if not isinstance(tree, list):
            found = decoding.json_type(tree)
            raise ReadError(f"json: cannot unmarshal {found} into Go value of type []core.Toleration")
        tolerations = [decoding.decode(TOLERATION, one, StrictNotes()) for one in tree]
    except (ReadError, DecodeError) as error:
        yield causes.invalid(PATH, _TOLERATIONS, str(error))
        return
    for index, toleration in enumerate(tolerations):
        yield from walk(TOLERATION, toleration, item(child(PATH, _TOLERATIONS), index), Scope(pod))


def _is_int32(text: str) -> bool:
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))
    return plain and len(digits) < 11 and -(2**31) <= int(text) < 2**31
