"""Changes of a machine's CPUs are noticed once each, and cost two small reads while there are none."""

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel.files import Directory
from corelane.machine import MachineError, spec, sysfs
from corelane.machine.watch import MachineWatch
from support.sysfs import files, write

ALL = CPUSet.parse("0-3")


class Guest:
    """A machine in a directory, whose CPUs can be switched off and whose processes can be confined."""

    def __init__(self, directory):
        self.directory, self.loads, self.allowed = directory, 0, ALL
        write(directory, files(spec.parse_spec("numa:2 core:2 smt:1")))

    def load(self):
        self.loads += 1
        sys, proc = Directory(str(self.directory / "sys")), Directory(str(self.directory / "proc"))
        return sysfs.discover(sys, proc, name="guest", source="guest", allowed=self.allowed.mask)

    def online(self, cpus):
        (self.directory / "sys/devices/system/cpu/online").write_text(f"{cpus}\n")

    def watch(self):
        watch = MachineWatch(
            self.load(),
            load=self.load,
            sys=Directory(str(self.directory / "sys")),
            allowed=lambda: self.allowed,
        )
        assert watch.changed() is None
        self.loads = 0
        return watch


@pytest.fixture
def guest(tmp_path):
    return Guest(tmp_path)


def test_nothing_is_read_anew_while_nothing_changes(guest):
    watch = guest.watch()
    assert [watch.changed() for _ in range(3)] == [None] * 3
    assert guest.loads == 0


def test_cpus_that_go_offline_and_come_back_are_noticed_once_each(guest):
    watch = guest.watch()
    guest.online("0-1,3")
    machine = watch.changed()
    assert (str(machine.usable), str(machine.offline)) == ("0-1,3", "2")
    assert watch.changed() is None
    guest.online("0-3")
    assert watch.changed().usable == ALL
    assert watch.changed() is None


def test_cpus_taken_from_the_cpuset_are_noticed(guest):
    watch = guest.watch()
    guest.allowed = CPUSet.parse("0-1")
    assert watch.changed().usable == guest.allowed
    guest.allowed = ALL
    assert watch.changed().usable == ALL


def test_a_change_between_reading_the_machine_and_watching_it_is_noticed(guest):
    machine = guest.load()
    guest.online("0")
    watch = MachineWatch(
        machine, load=guest.load, sys=Directory(str(guest.directory / "sys")), allowed=lambda: ALL
    )
    assert str(watch.changed().usable) == "0"


def test_a_machine_that_cannot_be_read_is_tried_again(guest):
    watch = guest.watch()
    guest.online("1-3")
    guest.allowed = CPUSet.parse("0")
    with pytest.raises(MachineError, match=r"no CPU is both on-line \(1-3\) and allowed \(0\)"):
        watch.changed()
    guest.allowed = ALL
    assert str(watch.changed().usable) == "1-3"


def test_an_unreadable_list_is_no_change(guest):
    watch = guest.watch()
    (guest.directory / "sys/devices/system/cpu/online").unlink()
    with pytest.raises(MachineError, match="cannot be read"):
        watch.changed()
    guest.online("0-3")
    assert watch.changed() is None


def test_a_change_while_the_machine_is_read_waits_for_the_next_call(guest):
    watch = guest.watch()
    guest.online("0-2")
    load = guest.load

    def slowly():
        machine = load()
        guest.online("0-1")
        return machine

    watch._load = slowly
    with pytest.raises(MachineError, match="changed while they were read"):
        watch.changed()
    watch._load = load
    assert str(watch.changed().usable) == "0-1"


def test_this_machine_does_not_change_by_being_looked_at():
    watch = MachineWatch(sysfs.live())
    assert watch.changed() is None
