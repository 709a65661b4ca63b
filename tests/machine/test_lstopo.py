"""Every snapshot of a real machine is grouped as lstopo groups it, but where docs/machines.md says why."""

import shutil
import subprocess
from pathlib import Path

import pytest

from corelane.machine.sources import load
from support.snapshots import DATA, needs_snapshots
from support.sysfs import groups

LSTOPO = shutil.which("lstopo-no-graphics")
ARCHIVES = sorted((DATA / "hwloc-sysfs").glob("*.tar.*"))
OTHERWISE = {
    "40intel64-4n10c+pci-conflicts": {
        "socket": "one CPU's mask contradicts all lists: lstopo goes by the mask"
    },
    "64amd64-4s2n4ca2co": {"core": "the halves of AMD's modules are siblings to the kernel, cores to lstopo"},
    "fakeheterocpunuma": {"numa": "CPUs in several NUMA nodes and in none: lstopo drops the later nodes"},
}
UNREAD = {"64fake-4n2s2ca2c2t", "8ia64-2n2s2c"}
"""What lstopo takes for no input."""


@pytest.mark.system
@needs_snapshots
@pytest.mark.skipif(not LSTOPO, reason="needs lstopo-no-graphics (hwloc)")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_grouping_is_that_of_lstopo(archive: Path, tmp_path: Path) -> None:
    name = archive.name.partition(".tar")[0]
    if name in UNREAD:
        pytest.skip("lstopo cannot read it")
    ours, theirs = load(str(archive)), load(str(told(archive, tmp_path)))
    assert [cpu.id for cpu in ours.cpus] == [cpu.id for cpu in theirs.cpus]
    for unit in ("core", "socket", "numa", "l3"):
        same = groups((cpu.id, getattr(cpu, unit)) for cpu in ours.cpus) == groups(
            (cpu.id, getattr(cpu, unit)) for cpu in theirs.cpus
        )
        assert same == (unit not in OTHERWISE.get(name, {})), unit


def told(archive: Path, to: Path) -> Path:
    """What lstopo makes of a snapshot, as XML; CPUs that some cgroup may not use included."""
    subprocess.run(["tar", "-xf", str(archive), "-C", str(to)], check=True, timeout=180)
    (root,) = (path.parent for path in (*to.glob("sys"), *to.glob("*/sys")))
    out = to / "told.xml"
    command = [LSTOPO or "", "-i", str(root), "--disallowed", "--of", "xml", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    return out
