"""One entry to all sources of machines: what a text or a path means is recognised here."""

import os
import re
from pathlib import Path

from corelane import input_files
from corelane.kernel.files import Directory, Tree
from corelane.machine import sysfs
from corelane.machine.model import Machine, MachineError
from corelane.machine.spec import parse_spec

_CPU_DIR = "devices/system/cpu"
_ARCHIVE_STARTS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_NEEDED = re.compile(
    r"(?:^|/)sys/(?:devices/system/(?:cpu|node)(?:$|/)|devices/cpu_(?:core|atom|lowpower)/|kernel/mm/hugepages"
    r"|bus/pci/devices|devices/.*/(?:class|vendor|device|numa_node|local_cpus|local_cpulist|driver)$)"
    r"|(?:^|/)proc/(?:cmdline$|meminfo$|irq/)"
)
_KNOWN = (
    "a spec ('socket:2 numa:4 core:16 smt:2'), a directory or tar archive with a copy of /sys, "
    "output of `lscpu -p` or `lscpu -J -e`, hwloc XML, or JSON of `corelane topology`"
)


def load(source: str | None = None) -> Machine:
    """The machine that `source` names; None or "" is this one.

    Recognised are: a spec; a directory that holds a copy of /sys (itself, or one level down); a tar archive
    of such a directory, with `#DIRECTORY` behind it where it holds several; a file with a spec, output of
    lscpu, hwloc's XML, or the JSON that `corelane topology -o json` prints. Raises MachineError naming source
    and field, and what to do.
    """
    if not source:
        return sysfs.live()
    path, _, inner = source.partition("#")
    try:
        file = Path(source) if Path(source).exists() else Path(path)
        if file.is_dir():
            return _from_directory(file)
        if file.exists():
            return _from_file(file, inner if file == Path(path) else "")
    except (OSError, ValueError) as error:
        if isinstance(error, MachineError):
            raise
        raise MachineError(f"{source}: cannot be read: {error}") from None
    if ":" in source and "/" not in source:
        return parse_spec(source)
    raise MachineError(f"{source}: no such file or directory; a machine is {_KNOWN}")


def _from_directory(path: Path) -> Machine:
    """`path` is the parent of a sys directory, the sys directory itself, or the only child has one."""
    parents = [path] if (path / "sys" / _CPU_DIR).is_dir() else sorted(path.glob(f"*/sys/{_CPU_DIR}"))
    roots = [path] if parents == [path] else [parent.parents[3] for parent in parents]
    if not roots and (path / _CPU_DIR).is_dir():
        return _discover(Directory(str(path)), Directory(str(path.parent / "proc")), path.name, str(path))
    root = _only(str(path), [str(root) for root in roots], "give that directory itself")
    return _discover(Directory(f"{root}/sys"), Directory(f"{root}/proc"), Path(root).name, root)


def _discover(sys: Tree, proc: Tree, name: str, source: str) -> Machine:
    return sysfs.discover(sys, proc, name=name, source=source)


def _only(source: str, roots: list[str], hint: str) -> str:
    if not roots:
        raise MachineError(f"{source}: no sys/{_CPU_DIR} in it; a machine is {_KNOWN}")
    if len(roots) > 1:
        raise MachineError(f"{source}: holds several machines ({', '.join(roots)}); {hint}")
    return roots[0]


def _from_file(path: Path, inner: str) -> Machine:
    with os.fdopen(input_files.open_file(path, regular=True), "rb") as file:
        head = file.read(512)
    if head.startswith(_ARCHIVE_STARTS) or head[257:262] == b"ustar":
        return _from_archive(path, inner)
    text = input_files.read(path, input_files.OBJECTS_BYTES, regular=True).decode(errors="replace")
    return _from_text(text, path.name.partition(".")[0], str(path))


def _from_archive(path: Path, inner: str) -> Machine:
    from corelane.kernel.archive import ArchiveError, read_archive

    try:
        archive = read_archive(path, lambda name: _NEEDED.search(name) is not None)
    except ArchiveError as error:
        raise MachineError(f"{error}; copy or make it again") from None
    inner, ending = inner.strip("/"), f"sys/{_CPU_DIR}"
    roots = [directory.removesuffix(ending).rstrip("/") for directory in archive.directories(ending)]
    chosen = [root for root in roots if inner in ("", root, root.rpartition("/")[2])]
    root = _only(str(path), chosen or roots, f"name one, as in {path}#{roots[0] if roots else ''}")
    prefix = f"{root}/" if root else ""
    name = root.rpartition("/")[2] or path.name.partition(".tar")[0]
    source = f"{path}#{root}" if len(roots) > 1 else str(path)
    return _discover(archive.under(f"{prefix}sys"), archive.under(f"{prefix}proc"), name, source)


def _from_text(text: str, name: str, source: str) -> Machine:
    from corelane.machine import hwloc, lscpu

    head = text.lstrip()[:200]
    if head.startswith("<"):
        return hwloc.parse_hwloc(text, name=name, source=source)
    if head.startswith("{") and '"core_id"' in text:
        return _from_json(text, source)
    if lscpu.is_lscpu(text):
        return lscpu.parse_lscpu(text, name=name, source=source)
    spec = " ".join(line.partition("//")[0] for line in text.splitlines())
    if re.match(r"\s*[A-Za-z0-9]+:[A-Za-z0-9]", spec):
        return parse_spec(spec, name=name, file=source)
    raise MachineError(f"{source}: not recognised; a machine is {_KNOWN}")


def _from_json(text: str, source: str) -> Machine:
    import json

    from corelane.machine.jsonform import from_dict

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{source}: not valid JSON: {error}") from None
    return from_dict(data, where=source)
