"""Machines for the command line: what `machine.load` knows, and nodes as a cluster publishes them.

A NodeResourceTopology, gocrane's too, comes as `kubectl get noderesourcetopology NAME -o yaml` or `-o json`
prints it; where there are several in a list, `#NAME` behind the file's name chooses.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from corelane import machine as machines
from corelane.machine import Machine, MachineError

__all__ = ["load"]

_MOST_BYTES: Final = 64 << 20
_KIND: Final = "NodeResourceTopology"
_NAMED: Final = re.compile(rb"""kind["']?\s*:\s*["']?NodeResourceTopology""")
_HELP: Final = "give the output of `kubectl get noderesourcetopology NAME -o yaml`"


def load(source: str | None = None) -> Machine:
    """The machine that `source` names; None or "" is this one. Raises MachineError as `machine.load` does."""
    path, _, name = (source or "").partition("#")
    file, name = (Path(source), "") if source and Path(source).is_file() else (Path(path), name)
    content = _content(file) if source else b""
    if not _NAMED.search(content):
        return machines.load(source)
    return _from_object(str(source), _chosen(str(source), _objects(file, content), name))


def _content(file: Path) -> bytes:
    """Of a text of sane size; whatever else it is, is left to `machine.load`."""
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return b""
        content = file.read_bytes()
    except (OSError, ValueError):
        return b""
    return b"" if b"\0" in content[:512] else content


def _objects(file: Path, content: bytes) -> list[dict[str, Any]]:
    """The objects of this kind in a file, lists taken apart."""
    import yaml

    try:
        # JSON is YAML too, but for tabs; and YAML takes a hundred times as long.
        trees = [_json(content)] if content.lstrip()[:1] == b"{" else list(yaml.safe_load_all(content))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MachineError(f"{file}: is no YAML or JSON: {' '.join(str(error).split())}; {_HELP}") from None
    listed = [item for tree in trees if isinstance(tree, dict) for item in tree.get("items") or [tree]]
    return [item for item in listed if isinstance(item, dict) and item.get("kind") == _KIND]


def _json(content: bytes) -> Any:
    import json

    return json.loads(content)


def _chosen(source: str, objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    names = [_name(item) for item in objects]
    found = [item for item, own in zip(objects, names, strict=True) if name in ("", own)]
    if len(found) == 1:
        return found[0]
    if not objects:
        raise MachineError(f"{source}: holds no {_KIND}; {_HELP}")
    what = f"none named {name}" if name and not found else "several"
    hint = f"name one, as in {source.partition('#')[0]}#{names[0]}"
    raise MachineError(f"{source}: holds {what} ({', '.join(names)}); {hint}")


def _name(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _from_object(source: str, tree: dict[str, Any]) -> Machine:
    import msgspec

    from corelane.kube import decode, keys, translate
    from corelane.kube.decode import Malformed
    from corelane.kube.objects import NodeResourceTopology
    from corelane.kube.translate.crane import CraneTopology

    try:
        if tree.get("apiVersion") == CraneTopology.api.api_version:
            return _from_cranes(source, tree)
        published = decode.decode_object(NodeResourceTopology, msgspec.json.encode(tree, enc_hook=str))
        if isinstance(published, Malformed):
            raise MachineError(f"{source}: {published.error}; {_HELP}")
        told = {keys.MACHINE, keys.CPU_TOPOLOGY} & published.metadata.annotations.keys()
        read = translate.machine_from_topology if told else translate.machine_from_zones
        return read(published)
    except (translate.TranslationError, TypeError) as error:
        raise MachineError(f"{source}: {error}; {_HELP}") from None


def _from_cranes(source: str, tree: dict[str, Any]) -> Machine:
    """An object of gocrane's of the same kind. Raises MachineError, TranslationError."""
    import msgspec

    from corelane.kube import decode
    from corelane.kube.decode import Malformed
    from corelane.kube.translate import crane
    from corelane.kube.translate.crane import CraneTopology

    published = decode.decode_object(CraneTopology, msgspec.json.encode(tree, enc_hook=str))
    if isinstance(published, Malformed):
        raise MachineError(f"{source}: {published.error}; {_HELP}")
    return crane.crane_machine(published)
