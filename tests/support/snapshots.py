"""The snapshots of real machines' sysfs, which lie beside the project where they are at hand."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = ("hwloc-sysfs", "nri-plugins-sysfs", "ghw-snapshots")
SEVERAL = "cmd_plugins_topology-aware_policy_testdata_sysfs.tar.bz2"
NO_MACHINE = "pkg_topology_test-data.tar.gz"
ARCHIVES = [path for folder in FOLDERS for path in sorted((DATA / folder).glob("*.tar.*"))]
_LARGE = 64_000
"""Bytes of an archive that takes about half a second to read, and more to do anything with."""


def _is_large(source: object) -> bool:
    return Path(str(source).partition("#")[0]).stat().st_size > _LARGE


SNAPSHOTS = [
    *(pytest.param(str(path), id=path.name) for path in ARCHIVES if path.name not in (SEVERAL, NO_MACHINE)),
    *(
        pytest.param(f"{path}#sysfs/{name}", id=name, marks=pytest.mark.system)
        for path in ARCHIVES
        if path.name == SEVERAL
        for name in ("desktop", "server", "4-socket-server-nosnc")
    ),
]
LARGE_ONES_SLOW = [
    pytest.param(*one.values, id=one.id, marks=pytest.mark.system) if _is_large(one.values[0]) else one
    for one in SNAPSHOTS
]
"""All snapshots, the large ones for the slow tests only."""
needs_snapshots = pytest.mark.skipif(not ARCHIVES, reason="the snapshots of real machines are not here")
