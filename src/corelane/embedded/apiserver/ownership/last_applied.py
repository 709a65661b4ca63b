"""Objects of client-side apply: kubectl's annotation, and how its server-side apply takes them over.

Upstream: apimachinery `pkg/util/managedfields` (lastappliedmanager, lastappliedupdater).
"""

from dataclasses import replace
from typing import Any

import msgspec

from corelane.embedded.apiserver.ownership import applying, field_sets, typed_values
from corelane.embedded.apiserver.ownership.applying import Applied, Applier
from corelane.embedded.apiserver.ownership.conflicts import ApplyConflictError
from corelane.embedded.apiserver.ownership.field_sets import FieldSet
from corelane.embedded.apiserver.ownership.kinds import Object, Resource
from corelane.embedded.apiserver.ownership.path_elements import html_escaped
from corelane.embedded.apiserver.ownership.typed_values import TypedValueError

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_MOST_BYTES = 256 * 1024


def apply(resource: Resource, live: Object, config: Object, applier: Applier) -> Applied:
    """As `applying.apply`; kubectl takes from others what its own client-side apply had written.

    Raises as `applying.apply`.
    """
    try:
        applied = applying.apply(resource, live, config, applier)
    except ApplyConflictError as error:
        if applier.name != _KUBECTL:
            raise
        left = _not_last_applied(resource, live, error)
        if left:
            raise ApplyConflictError(left) from None
        applied = applying.apply(resource, live, config, replace(applier, force=True))
    return _annotated(applied, live, config) if applier.name == _KUBECTL else applied


def _not_last_applied(resource: Resource, live: Object, error: ApplyConflictError) -> dict[Any, FieldSet]:
    """Return the conflicts with fields that the annotation does not have as they are."""
    allowed = _last_applied_fields(resource, live)
    clashes = {who: field_sets.difference(fields, allowed) for who, fields in error.clashes.items()}
    return {who: fields for who, fields in clashes.items() if fields}


def _last_applied_fields(resource: Resource, live: Object) -> FieldSet:
    text = _annotation(live)
    if not text:
        return {}
    try:
        last = msgspec.json.decode(text.encode(), type=dict[str, Any])
        if last.get("apiVersion") != resource.api_version or not last.get("kind"):
            return {}
        typed_values.check(resource.type, last)
    except (msgspec.DecodeError, TypedValueError):
        return {}
    return applying.unchanged_fields(resource, last, live)


def _annotation(obj: Object) -> str:
    text = (obj.get("metadata", {}).get("annotations") or {}).get(ANNOTATION)
    return text if isinstance(text, str) else ""


def _annotated(applied: Applied, live: Object, config: Object) -> Applied:
    """Keep the annotation, where there is one, in step with what is applied."""
    obj = applied.obj if applied.obj is not None else live
    if not _annotation(obj):
        return applied
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: _written(config)}
    if sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items()) > _MOST_BYTES:
        del annotations[ANNOTATION]
    return replace(applied, obj={**obj, "metadata": {**obj["metadata"], "annotations": annotations}})


def _written(config: Object) -> str:
    """Return an applied object as the annotation has it: JSON with sorted keys, without the annotation."""
    meta = dict(config.get("metadata") or {})
    if isinstance(meta.get("annotations"), dict):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != ANNOTATION}
    text = msgspec.json.encode({**config, "metadata": meta}, order="sorted").decode()
    return html_escaped(text) + "\n"
