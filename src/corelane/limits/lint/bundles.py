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
            named = [text(item, "path") for key in _PATCHES for item in items(root, key)]
            # An item with lines is a patch itself (`inline_patches`).
            merged = (
                item.text for item in items(root, "patchesStrategicMerge") if isinstance(item, LocatedScalar)
            )
            named += [line for line in merged if "\n" not in line]
            patches |= {_path(file, name) for name in named if name}
            for key in ("resources", "bases"):
                names = (item.text for item in items(root, key) if isinstance(item, LocatedScalar))
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


def placed(manifest: ManifestObject, kustomized: Kustomized) -> ManifestObject:
    """The object with its kustomization, marked where it is a patch and so not whole.

    An object is a patch if a kustomization names its file as one, or if a container has no image: the API
    server rejects that, so something else must supply it. An object without a selector, which it rejects,
    too, is one in a file that is named as a patch, or that lies beside a kustomization which does not use it.
    """
    path = posixpath.normpath(manifest.file.replace("\\", "/"))
    pod = manifest.pod
    bare = pod is not None and not pod.embedded and any(not each.image for each in pod.containers)
    unused = _folder(path) in kustomized.folders and path not in kustomized.resources
    unselected = manifest.group == "apps" and at(manifest.node, "spec", "selector") is None
    fragment = pod is not None and unselected and (unused or "patch" in posixpath.basename(path).lower())
    partial = manifest.partial or bare or fragment or path in kustomized.patches
    return replace(manifest, partial=partial, kustomization=kustomized.resources.get(path, ""))


def deployed_with(manifest: ManifestObject, others: Sequence[ManifestObject]) -> list[ManifestObject]:
    """Return the objects of the same namespace that are deployed with `manifest`.

    The nearest count: of the same file, else of the same kustomization or Helm release. Any other only where
    both objects give their namespace: without, objects of different files may go anywhere.
    """
    possible = [each for each in others if not _apart(manifest, each)]
    nearest = (
        [each for each in possible if each.file == manifest.file],
        [each for each in possible if manifest.kustomization == each.kustomization != ""],
        [each for each in possible if _same_release(manifest, each)],
        [each for each in possible if manifest.namespace == each.namespace != ""],
    )
    return next(filter(None, nearest), [])


def with_variants(objects: Iterable[ManifestObject]) -> list[ManifestObject]:
    """The objects, marked where several files define the same one, as for several clusters or tests."""
    all_of = list(objects)
    files: dict[tuple[str, ...], set[str]] = {}
    for each in all_of:
        files.setdefault(_identity(each), set()).add(posixpath.normpath(each.file.replace("\\", "/")))
    return [replace(each, variant=True) if len(files[_identity(each)]) > 1 else each for each in all_of]


def _identity(manifest: ManifestObject) -> tuple[str, ...]:
    return manifest.kind, manifest.group, manifest.namespace, manifest.name


def governs(rule: ManifestObject, manifest: ManifestObject) -> bool:
    """Whether a LimitRange or ResourceQuota is of the namespace of another object in the same namespace.

    Where both give it, in any file. Else, as the namespace is then chosen at deployment, only beside it: in
    the same file, kustomization or Helm release, or in a file of the same directory or one below. Of a rule
    that several files define one only is there, so it also counts beside it only.
    """
    if rule.namespace and manifest.namespace:
        if rule.namespace != manifest.namespace:
            return False
        if not rule.variant:
            return True
    if _apart(rule, manifest):
        return False
    together = bool(rule.kustomization) and rule.kustomization == manifest.kustomization
    folder, inside = (posixpath.dirname(each.file.replace("\\", "/")) for each in (rule, manifest))
    below = not folder or inside == folder or inside.startswith(f"{folder}/")
    return rule.file == manifest.file or together or below or _same_release(rule, manifest)


def _apart(manifest: ManifestObject, other: ManifestObject) -> bool:
    """Whether the objects are of different charts or releases."""
    origins = ((chart(manifest), chart(other)), (_release(manifest), _release(other)))
    return any(mine and theirs and mine != theirs for mine, theirs in origins)


def _same_release(manifest: ManifestObject, other: ManifestObject) -> bool:
    """Whether both come from one rendering: of one chart and release, below one directory."""
    origin = chart(manifest) or _release(manifest)
    same = (chart(manifest), _release(manifest)) == (chart(other), _release(other))
    return bool(origin) and same and _rendered_to(manifest) == _rendered_to(other)


def chart(manifest: ManifestObject) -> str:
    """The chart in Helm's `# Source: CHART/templates/…`; empty where there is none."""
    return manifest.source.partition("/")[0]


def _release(manifest: ManifestObject) -> str:
    return text(manifest.node, "metadata", "labels", _INSTANCE)


def _rendered_to(manifest: ManifestObject) -> str:
    """Return where `helm template --output-dir` wrote the chart; else the file's directory."""
    path = manifest.file.replace("\\", "/")
    if manifest.source and path.endswith(manifest.source):
        return path.removesuffix(manifest.source)
    return posixpath.dirname(path)
