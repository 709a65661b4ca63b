"""Which objects are deployed together, and which are patches: by Kustomize's files and Helm's releases."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.limits.lint.located import Located, LocatedScalar, at, items, text
from corelane.limits.lint.manifests import ManifestObject

_FILES: Final = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
_KINDS: Final = frozenset({"Kustomization", "Component"})
_GROUP: Final = "kustomize.config.k8s.io"
_PATCHES: Final = ("patches", "patchesJson6902")
_INSTANCE: Final = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True)
class Kustomized:
    """Names in the kustomizations of an input: files of patches, and the kustomization of each resource."""

    patches: Collection[str] = frozenset()
    resources: Mapping[str, str] = field(default_factory=dict)
    folders: Collection[str] = frozenset()
    """Directories with a kustomization."""


def kustomized(roots: Iterable[tuple[str, Located]]) -> Kustomized:
    """Read the kustomizations among documents, each with its file."""
    patches: set[str] = set()
    folders: set[str] = set()
    resources: dict[str, str] = {}
    for file, root in roots:
        if is_kustomization(file, root):
            folders.add(_folder(file))
            named = [text(one, "path") for key in _PATCHES for one in items(root, key)]
            # An item with lines is a patch itself (`inline_patches`).
            merged = (
                one.text for one in items(root, "patchesStrategicMerge") if isinstance(one, LocatedScalar)
            )
            named += [one for one in merged if "\n" not in one]
            patches |= {_path(file, one) for one in named if one}
            for key in ("resources", "bases"):
                names = (one.text for one in items(root, key) if isinstance(one, LocatedScalar))
                resources |= {_path(file, name): file for name in names}
    return Kustomized(patches, resources, folders)


def is_kustomization(file: str, root: Located) -> bool:
    """Whether a document is one, by apiVersion, or by the file's name: both fields may be left out."""
    kind, group = text(root, "kind"), text(root, "apiVersion").partition("/")[0]
    if kind or group:
        return kind in _KINDS and group == _GROUP
    return posixpath.basename(file.replace("\\", "/")) in _FILES


def _path(file: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(_folder(file), name))


def _folder(file: str) -> str:
    return posixpath.normpath(posixpath.dirname(file.replace("\\", "/")))


def placed(one: ManifestObject, known: Kustomized) -> ManifestObject:
    """The object with its kustomization, marked where it is a patch and so not whole.

    An object is a patch if a kustomization names its file as one, or if a container has no image: the API
    server rejects that, so something else must supply it. An object without a selector, which it rejects,
    too, is one in a file that is named as a patch, or that lies beside a kustomization which does not use it.
    """
    path = posixpath.normpath(one.file.replace("\\", "/"))
    pod = one.pod
    bare = pod is not None and not pod.embedded and any(not each.image for each in pod.containers)
    unused = _folder(path) in known.folders and path not in known.resources
    unselected = one.group == "apps" and pod is not None and at(one.node, "spec", "selector") is None
    fragment = unselected and (unused or "patch" in posixpath.basename(path).lower())
    partial = one.partial or bare or fragment or path in known.patches
    return replace(one, partial=partial, kustomization=known.resources.get(path, ""))


def deployed_with(one: ManifestObject, others: Sequence[ManifestObject]) -> list[ManifestObject]:
    """Return the objects of the same namespace that are deployed with `one`.

    The nearest count: of the same file, else of the same kustomization or Helm release. Any other only where
    both objects give their namespace: without, objects of different files may go anywhere.
    """
    possible = [each for each in others if not _apart(one, each)]
    nearest = (
        [each for each in possible if each.file == one.file],
        [each for each in possible if one.kustomization and each.kustomization == one.kustomization],
        [each for each in possible if _same_release(one, each)],
        [each for each in possible if one.namespace and each.namespace == one.namespace],
    )
    return next(filter(None, nearest), [])


def with_variants(objects: Iterable[ManifestObject]) -> list[ManifestObject]:
    """The objects, marked where several files define the same one, as for several clusters or tests."""
    all_of = list(objects)
    files: dict[tuple[str, ...], set[str]] = {}
    for one in all_of:
        files.setdefault(_identity(one), set()).add(posixpath.normpath(one.file.replace("\\", "/")))
    return [replace(one, variant=True) if len(files[_identity(one)]) > 1 else one for one in all_of]


def _identity(one: ManifestObject) -> tuple[str, ...]:
    return one.kind, one.group, one.namespace, one.name


def governs(rule: ManifestObject, one: ManifestObject) -> bool:
    """Whether a LimitRange or ResourceQuota is of the namespace of another object in the same namespace.

    Where both give it, in any file. Else, as the namespace is then chosen at deployment, only beside it: in
    the same file, kustomization or Helm release, or in a file of the same directory or one below. Of a rule
    that several files define one only is there, so it also counts beside it only.
    """
    if rule.namespace and one.namespace:
        if rule.namespace != one.namespace:
            return False
        if not rule.variant:
            return True
    if _apart(rule, one):
        return False
    together = bool(rule.kustomization) and rule.kustomization == one.kustomization
    folder, inside = (posixpath.dirname(each.file.replace("\\", "/")) for each in (rule, one))
    below = not folder or inside == folder or inside.startswith(f"{folder}/")
    return rule.file == one.file or together or below or _same_release(rule, one)


def _apart(one: ManifestObject, other: ManifestObject) -> bool:
    """Whether the objects are of different charts or releases."""
    return any(a and b and a != b for a, b in ((chart(one), chart(other)), (_release(one), _release(other))))


def _same_release(one: ManifestObject, other: ManifestObject) -> bool:
    """Whether both come from one rendering: of one chart and release, below one directory."""
    known = chart(one) or _release(one)
    same = (chart(one), _release(one)) == (chart(other), _release(other))
    return bool(known) and same and _rendered_to(one) == _rendered_to(other)


def chart(one: ManifestObject) -> str:
    """The chart in Helm's `# Source: CHART/templates/…`; empty where there is none."""
    return one.source.partition("/")[0]


def _release(one: ManifestObject) -> str:
    return text(one.node, "metadata", "labels", _INSTANCE)


def _rendered_to(one: ManifestObject) -> str:
    """Return where `helm template --output-dir` wrote the chart; else the file's directory."""
    path = one.file.replace("\\", "/")
    if one.source and path.endswith(one.source):
        return path.removesuffix(one.source)
    return posixpath.dirname(path)
