"""Machines for the command line: the sources of `machine.sources`, and nodes as a cluster publishes them.

A NodeResourceTopology, gocrane's too, is the output of `kubectl get noderesourcetopology NAME -o yaml` or
`-o json`; in a list of several, `#NAME` after the file's name chooses one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corelane import input_files
from corelane.machine import Machine, MachineError, sources

_KIND: Final = "NodeResourceTopology"
_NAMED: Final = re.compile(rb"""kind["']?\s*:\s*["']?NodeResourceTopology""")
_HELP: Final = "give the output of `kubectl get noderesourcetopology NAME -o yaml`"


def load(source: str | None = None) -> Machine:
    """Return the machine that `source` names; None or "" is this one. Raises MachineError."""
    path, _, name = (source or "").partition("#")
    file, name = (Path(source), "") if source and Path(source).is_file() else (Path(path), name)
    content = b""  # of a text; anything else is left to `machine.sources`
    with suppress(OSError, ValueError):
        content = input_files.read(file, input_files.OBJECTS_BYTES, regular=True) if source else b""
    if b"\0" in content[:512] or not _NAMED.search(content):
        return sources.load(source)
    import json

    import yaml

    from corelane.yaml_keys import load_bounded

    try:
        # JSON is YAML too, except for tabs; but parsing it as YAML takes a hundred times as long.
        is_json = content.lstrip()[:1] == b"{"
        trees = [json.loads(content)] if is_json else load_bounded(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MachineError(f"{file}: not YAML or JSON: {' '.join(str(error).split())}; {_HELP}") from None
    listed = [item for tree in trees if isinstance(tree, dict) for item in tree.get("items") or [tree]]
    objects = [item for item in listed if isinstance(item, dict) and item.get("kind") == _KIND]
    return _from_object(str(source), _chosen(str(source), objects, name))


def _chosen(source: str, objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    parts = [metadata if isinstance(metadata := item.get("metadata"), dict) else {} for item in objects]
    names = [str(metadata.get("name", "")) for metadata in parts]
    chosen = [item for item, own in zip(objects, names, strict=True) if name in ("", own)]
    if len(chosen) == 1:
        return chosen[0]
    if not objects:
        raise MachineError(f"{source}: has no {_KIND}; {_HELP}")
    what = f"none named {name}" if name and not chosen else "several"
    hint = f"choose one, as in {source.partition('#')[0]}#{names[0]}"
    raise MachineError(f"{source}: has {what} ({', '.join(names)}); {hint}")


def _from_object(source: str, tree: dict[str, Any]) -> Machine:
    """The machine of a NodeResourceTopology, or of gocrane's object of this kind. Raises MachineError."""
    import msgspec

    from corelane.kube import decode, keys, translate
    from corelane.kube.decode import Malformed
    from corelane.kube.objects import NodeResourceTopology
    from corelane.kube.translate.crane import CraneTopology, crane_machine

    is_crane = tree.get("apiVersion") == CraneTopology.api.api_version
    kind: type[CraneTopology | NodeResourceTopology] = CraneTopology if is_crane else NodeResourceTopology
    try:
        published = decode.decode_object(kind, msgspec.json.encode(tree, enc_hook=str))
        if isinstance(published, Malformed):
            raise MachineError(f"{source}: {published.error}; {_HELP}")
        if isinstance(published, CraneTopology):
            return crane_machine(published)
        if {keys.MACHINE, keys.CPU_TOPOLOGY} & published.metadata.annotations.keys():
            return translate.machine_from_topology(published)
        return translate.machine_from_zones(published)
    except (translate.TranslationError, TypeError) as error:
        raise MachineError(f"{source}: {error}; {_HELP}") from None
