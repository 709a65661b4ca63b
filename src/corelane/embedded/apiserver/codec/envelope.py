"""Decoding of a request's body: media type, kind and version, then the fields by the schema."""

from typing import Any

from corelane.embedded.apiserver import served_kinds, status_errors
from corelane.embedded.apiserver.codec import custom_resources, decoding, json_reading, yaml_reading
from corelane.embedded.apiserver.codec.decoding import DecodeError, StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError, quoted
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError

Object = dict[str, Any]

UNPARSED = "couldn't get version/kind; json parse error: "
_TYPE_META = (
    r'Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)
_OPTIONS_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
# Versions that upstream knows (and converts) but does not serve here.
_OTHER_VERSIONS = {
    "coordination.k8s.io": ("v1beta1",),
    "events.k8s.io": ("v1beta1",),
    "policy": ("v1beta1",),
    "scheduling.k8s.io": ("v1beta1", "v1alpha1"),
    "storage.k8s.io": ("v1beta1",),
}


JSON = "application/json"


def decode(
    kind: ServedKind, version: str, body: bytes, *, field_validation: str = "Warn", content_type: str = JSON
) -> tuple[Object, list[str]]:
    """Read a request's body as an object of the kind, and the warnings to answer with.

    `field_validation` is Warn, Strict or Ignore (of unknown and repeated fields). Raises StatusError 400.
    """
    tree = read(kind, body, content_type)
    if kind.custom and not _text(tree, "kind"):
        text = body.decode(errors="replace")
        raise _unrecognized(kind, f"Object 'Kind' is missing in '{text}'", body)
    check(kind, version, tree)
    notes = StrictNotes()
    if _is_yaml(content_type) and field_validation != "Ignore":
        _note_repeated_keys(body, field_validation, notes)
    if kind.custom:
        custom_resources.note_repeats(tree, "", notes)
    return shaped(kind, version, tree, field_validation=field_validation, notes=notes)


def shaped(
    kind: ServedKind,
    version: str,
    tree: Object,
    *,
    field_validation: str = "Warn",
    notes: StrictNotes | None = None,
) -> tuple[Object, list[str]]:
    """Decode values that are parsed already, as `decode`; `notes` are of parsing. Raises StatusError 400."""
    notes = notes or StrictNotes()
    try:
        decode_tree = custom_resources.decode if kind.custom else decoding.decode
        made = decode_tree(kind.schema[version], tree, notes)
    except DecodeError as error:
        raise status_errors.bad_request(unusable(kind, version, tree, str(error))) from None
    if field_validation == "Strict" and notes.strict:
        text = f"strict decoding error: {', '.join(notes.strict)}"
        raise status_errors.bad_request(unusable(kind, version, tree, text))
    obj = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
    obj |= {name: value for name, value in made.items() if name not in obj}
    return obj, notes.strict if field_validation == "Warn" else []


def read(kind: ServedKind, body: bytes, content_type: str) -> Object:
    """The body as a JSON object; `null` is an empty one. Raises StatusError 400."""
    try:
        tree = parse(body, content_type)
    except ReadError as error:
        raise _unrecognized(kind, f"{'' if _is_yaml(content_type) else UNPARSED}{error}", body) from None
    tree = {} if tree is None else tree
    try:
        if not isinstance(tree, dict):
            raise ReadError(_not_an_object(tree))
        for name in ("apiVersion", "kind"):
            _text(tree, name)
    except ReadError as error:
        raise _unrecognized(kind, f"{UNPARSED}{error}", body) from None
    said = _text(tree, "apiVersion")
    if said.count("/") > 1:
        raise _unrecognized(kind, f"unexpected GroupVersion string: {said}", body)
    return tree


def not_an_object(value: Any) -> str:
    """Why a value is no object of any kind, in upstream's words."""
    return f"{UNPARSED}{_not_an_object(value)}"


def _not_an_object(value: Any) -> str:
    return f"json: cannot unmarshal {decoding.json_type(value)} into {_TYPE_META}"


def _note_repeated_keys(body: bytes, field_validation: str, notes: StrictNotes) -> None:
    """Note the keys that a YAML body repeats: each is a warning of its own, or part of one error."""
    lines = yaml_reading.repetitions(body)
    if lines and field_validation == "Strict":
        lines = ["\n  ".join(["yaml: unmarshal errors:", *lines])]
    for line in lines:
        notes.add(line)


def _unrecognized(kind: ServedKind, why: str, body: bytes) -> StatusError:
    return status_errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({quoted(body)})"
    )


def parse(body: bytes, content_type: str) -> Any:
    """The body's values, by its media type. Raises ReadError."""
    return yaml_reading.read_yaml(body) if _is_yaml(content_type) else json_reading.read_json(body)


def _is_yaml(content_type: str) -> bool:
    return content_type.partition(";")[0].strip() in {"application/yaml", "text/yaml", "application/x-yaml"}


def check(kind: ServedKind, version: str, tree: Object) -> None:
    """Whether a body that names a kind and version names the ones of the path. Raises StatusError 400."""
    said_version, said_kind = _text(tree, "apiVersion"), _text(tree, "kind")
    expected = kind.api_version(version)
    if kind.custom:
        if not said_kind:
            raise status_errors.bad_request(unusable(kind, version, tree, "Object 'Kind' is missing"))
    else:
        said_version = said_version or expected
        _check_known(kind, version, tree, said_version, said_kind or kind.kind)
    if kind.custom and said_version == expected and said_kind != kind.kind:
        raise wrong_type(kind, version, tree)
    if said_version != expected and kind is not served_kinds.EVICTIONS:
        mismatch = f"({said_version}) does not match the expected API version ({expected})"
        raise status_errors.bad_request(f"the API version in the data {mismatch}")


def wrong_type(kind: ServedKind, version: str, tree: Object) -> StatusError:
    """422 for a custom object that says to be of another kind or version."""
    said = {name: _text(tree, name) for name in ("kind", "apiVersion")}
    expected = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
    faults = [
        StatusCause("FieldValueInvalid", f'Invalid value: "{said[name]}": must be {wanted}', name)
        for name, wanted in expected.items()
        if said[name] != wanted
    ]
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return status_errors.invalid(said["kind"], said["apiVersion"].rpartition("/")[0], str(name or ""), faults)


def _check_known(kind: ServedKind, version: str, tree: Object, said_version: str, said_kind: str) -> None:
    group, _, said = said_version.rpartition("/")
    convertible = said_kind == kind.kind and said in _versions(kind, group)
    if convertible:
        return
    if _registered(group, said, said_kind):
        why = f"converting ({said}.{said_kind}) to ({_internal(kind)}.{kind.kind}): unknown conversion"
    else:
        why = f'no kind "{said_kind}" is registered for version "{said_version}" in scheme "{_SCHEME}"'
    raise status_errors.bad_request(unusable(kind, version, tree, why))


_UNVERSIONED = {"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "List", "Status"}
_OPTIONS = {"CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions"}
_OTHERS = {
    "": "ComponentStatus Endpoints LimitRange PodTemplate ReplicationController ResourceQuota Service "
    "ServiceAccount",
    "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "networking.k8s.io": "Ingress IngressClass NetworkPolicy",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
}
"""Kinds of v1 that manifests often hold and that are not served."""


def _registered(group: str, version: str, kind: str) -> bool:
    """Whether upstream's scheme has the kind, so that the body is read before it is found to be another."""
    served = {(one.group, said) for one in served_kinds.KINDS if not one.custom for said in one.versions}
    if (group, version) == ("", "v1") and kind in _UNVERSIONED:
        return True
    if kind in _OPTIONS and ((group, version) in served or (group in _OTHERS and version == "v1")):
        return True
    kind = kind.removesuffix("List")
    if version == "v1" and kind in _OTHERS.get(group, "").split():
        return True
    return any(
        kind == one.kind and group == one.group and version in one.versions for one in served_kinds.KINDS
    )


def _internal(kind: ServedKind) -> str:
    """Upstream's package of the kind's internal type."""
    return "core" if kind.stored == "events" else kind.group.partition(".")[0] or "core"


def _versions(kind: ServedKind, group: str) -> tuple[str, ...]:
    """The versions of a group in which the kind's objects can be written, served or not."""
    served = next(
        (one.versions for one in served_kinds.KINDS if one.stored == kind.stored and one.group == group), ()
    )
    if group == kind.group and not served:
        served = kind.versions
    return (*served, *_OTHER_VERSIONS.get(group, ())) if served else ()


def unusable(kind: ServedKind, version: str, tree: Object, why: str) -> str:
    """Upstream's words for a body that is not an object of the kind."""
    said_kind = _text(tree, "kind") or kind.kind
    said = _text(tree, "apiVersion").rpartition("/")[2] or version
    return f'{said_kind} in version "{said}" cannot be handled as a {kind.kind}: {why}'


def options(record: ObjectType, body: bytes, content_type: str) -> Object:
    """The options that come as a body, of any group and version. Raises StatusError 400."""
    try:
        tree = parse(body, content_type)
        said = _text(tree, "kind") if isinstance(tree, dict) else ""
        if said not in {"", record.name}:
            version = _text(tree, "apiVersion")
            why = f'no kind "{said}" is registered for version "{version}" in scheme "{_OPTIONS_SCHEME}"'
            raise status_errors.bad_request(why)
        return decoding.decode(record, tree, StrictNotes())
    except (ReadError, DecodeError) as error:
        raise status_errors.bad_request(f"{UNPARSED}{error}") from None


def _text(tree: Object, name: str) -> str:
    value = tree.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise ReadError(
        f"json: cannot unmarshal {decoding.json_type(value)} into Go struct field .{name} of type string"
    )
