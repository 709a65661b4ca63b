"""Weights of the cgroups that compete with a container, read from directories and from this kernel."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kernel.cpu_time import competitors
from corelane.kernel.cpu_time.competitors import GroupReader, GroupWeight, Level
from support.kubepods import write

SECOND = 1_000_000


def group(path: Path, *, weight=None, shares=None, used=0, cpus="0-3", idle=False, alive=True) -> None:
    write(path / "cgroup.procs", "1" if alive else "")
    if weight is not None:
        write(path / "cpu.weight", str(weight))
    if shares is not None:
        write(path / "cpu.shares", str(shares))
    write(path / "cpu.idle", str(int(idle)))
    write(path / "cpuset.cpus.effective", cpus)
    write(path / "cpu.stat", f"usage_usec {used}\nuser_usec {used}")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A root, kubepods with a Guaranteed pod and the Burstable pods, and a service beside all pods."""
    top = tmp_path / "cgroup"
    group(top, used=0)
    group(top / "kubepods", weight=150, alive=False)
    group(top / "system", weight=100)
    group(top / "kubepods/burstable", weight=50, alive=False)
    group(top / "kubepods/guaranteed-pod", weight=200)
    group(top / "kubepods/burstable/a", weight=10, alive=False)
    group(top / "kubepods/burstable/b", weight=30)
    group(top / "kubepods/burstable/a/app", weight=5)
    group(top / "kubepods/burstable/a/sidecar", weight=15)
    return top


APP = "kubepods/burstable/a/app"


def levels(node: Path, cpus: str = "0-3"):
    return GroupReader().levels([str(node / APP)], CPUSet.parse(cpus))


def names(level: Level) -> list[str]:
    return [Path(each.path).name for each in level.siblings]


def test_every_level_of_the_path_has_its_own_siblings(node):
    found = levels(node)
    assert [Path(each.own.path).name for each in found] == ["app", "a", "burstable", "kubepods"]
    assert [names(each) for each in found] == [["sidecar"], ["b"], ["guaranteed-pod"], ["system"]]


def test_weights_are_in_shares_as_the_kernel_converts_them(node):
    assert levels(node)[0].own.weight == 51  # 5 * 10.24
    assert levels(node)[3].own.weight == 1536
    group(node / "kubepods/burstable/b", weight=30, idle=True)
    (idle,) = levels(node)[1].siblings
    assert (idle.weight, idle.idle) == (3, True)


def test_groups_that_may_use_none_of_its_cpus_do_not_compete(node):
    """A pod may use all CPUs while its only container has others exclusively."""
    group(node / "kubepods/guaranteed-pod", weight=200, alive=False)
    group(node / "kubepods/guaranteed-pod/app", weight=100, cpus="2-3")
    assert names(levels(node, "0-1")[2]) == []
    assert names(levels(node, "1-2")[2]) == ["guaranteed-pod"]


def test_a_level_without_a_weight_is_left_out(node):
    write(node / APP / "cpu.weight", "max")
    assert Path(levels(node)[0].own.path).name == "a", "not a number"
    (node / APP / "cpu.weight").unlink()
    assert [Path(each.own.path).name for each in levels(node)] == ["a", "burstable", "kubepods"]


def test_no_weights_no_levels(tmp_path):
    write(tmp_path / "one/cgroup.procs", "1")
    assert GroupReader().levels([str(tmp_path / "one")]) == ()
    assert GroupReader().levels([str(tmp_path / "gone")]) == ()
    assert competitors.competition((), (), 1.0) is None


def test_what_competitors_used_and_how_much_they_weigh(node):
    before = levels(node)
    group(node / APP, weight=5, used=SECOND // 10)
    group(node / "kubepods/burstable/b", weight=30, used=SECOND)
    group(node / "system", weight=100, used=SECOND // 2)
    group(node / "kubepods/guaranteed-pod", weight=200, used=4000)
    after = levels(node)
    found = competitors.competition(before, after, 2.0)
    assert found is not None
    assert [(Path(each.path).name, each.used) for each in found.competitors] == [
        ("b", 500.0),
        ("system", 250.0),
        ("guaranteed-pod", 2.0),
    ]
    # b against pod a, 30 : 10; the guaranteed pod is idle; system against kubepods, 100 : 150.
    assert found.share == pytest.approx(0.25 * 0.6, rel=0.01)
    assert found.competitors[0].relative == pytest.approx(3.0, rel=0.01)
    assert found.competitors[1].relative == pytest.approx(100 / (150 * 0.25), rel=0.01)
    assert found.relative == pytest.approx(1 / 0.15 - 1, rel=0.02)


def test_processes_beside_the_groups_compete_too(node):
    before = levels(node)
    group(node, used=3 * SECOND)
    group(node / "system", weight=100, used=SECOND)
    found = competitors.competition(before, levels(node), 1.0)
    assert found is not None
    loose = next(each for each in found.competitors if each.loose)
    assert (loose.path, loose.used, loose.weight) == (str(node), 2000.0, 2048)


def test_groups_without_processes_have_none_beside_the_groups_below(node):
    """The groups go on running after they are read, so the one above has used more when it is read."""
    before = levels(node)
    group(node / "kubepods/burstable/b", weight=30, used=SECOND)
    group(node / "kubepods/burstable", weight=50, used=SECOND + SECOND // 50, alive=False)
    found = competitors.competition(before, levels(node), 1.0)
    assert found is not None
    assert not any(each.loose for each in found.competitors)
    assert found.share == pytest.approx(0.25, rel=0.01), "b alone, 30 against 10"


weights = st.integers(1, 10_000)


@given(st.lists(st.tuples(weights, st.lists(weights, max_size=4)), min_size=1, max_size=4))
def test_shares_of_all_who_are_busy_add_up_to_the_whole(tree):
    """Each gets the product of its parts along its path; rivals of the container get the rest."""
    after = tuple(
        Level(
            GroupWeight(f"/{n}", own, used_us=0),
            tuple(GroupWeight(f"/{n}/{i}", w, used_us=SECOND) for i, w in enumerate(beside)),
        )
        for n, (own, beside) in enumerate(tree)
    )
    before = tuple(
        Level(level.own, tuple(GroupWeight(each.path, each.weight, used_us=0) for each in level.siblings))
        for level in after
    )
    found = competitors.competition(before, after, 1.0)
    assert found is not None
    expected = math.prod(own / (own + sum(beside)) for own, beside in tree)
    assert found.share == pytest.approx(expected)
    total = found.share * (1 + sum(each.relative for each in found.competitors))
    assert total == pytest.approx(1.0)


def test_a_group_that_began_meanwhile_used_its_time_since_then():
    own = GroupWeight("/a", 1024, used_us=0)
    after = (Level(own, (GroupWeight("/b", 1024, used_us=SECOND),)),)
    found = competitors.competition((Level(own),), after, 2.0)
    assert found is not None
    assert found.competitors[0].used == 500.0


def test_a_group_that_moves_to_the_containers_cpus_used_what_it_grew_by(node):
    """Its cpuset changes; what it has used before, elsewhere, is no competition."""
    other = node / "kubepods/burstable/b"
    group(other, weight=30, used=900 * SECOND, cpus="8-11")
    before = levels(node)
    group(other, weight=30, used=901 * SECOND, cpus="0-3")
    found = competitors.competition(before, levels(node), 2.0)
    assert found is not None
    assert [(Path(each.path).name, each.used) for each in found.competitors] == [("b", 500.0)]


def test_groups_that_containers_share_are_read_once(node, monkeypatch):
    read = list[tuple]()
    original = competitors._group
    monkeypatch.setattr(competitors, "_group", lambda *each: read.append(each) or original(*each))
    reader = GroupReader()
    for name in ("app", "sidecar"):
        reader.levels([str(node / "kubepods/burstable/a" / name)], CPUSet.parse("0-3"))
    assert all(one != other for one, other in itertools.combinations(read, 2))
