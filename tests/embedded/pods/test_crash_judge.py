"""What the kill tests on real containers count as a fault."""

from support.crash_judge import judge

NAMES = {"x": "1/x", "y": "2/y", "p": "3/p"}


def shot(at: float, ledger: dict[str, str], second: dict[str, str] | None = None, **cpus: str) -> dict:
    return {"at": at, "ledger": ledger, "first": cpus, "second": second or cpus}


def faults(*shots: dict, drifts: tuple = ()) -> list[str]:
    return [line.split(" ", 1)[1].split(":")[0] for line in judge(list(shots), NAMES, "0-1", drifts)]


def test_a_container_that_was_narrowed_is_not_to_be_on_an_owners_cpus():
    alone = shot(1, {"1/x": "1"}, x="1", p="0")
    assert faults(alone) == []
    assert faults(alone, shot(2, {"1/x": "1"}, x="1", p="0-1")) == ["3/p is on CPUs of 1/x"]
    assert faults(shot(1, {"1/x": "1"}, x="1", p="0-1")) == [], "without NRI a container starts anywhere"
    both = shot(3, {"1/x": "1", "2/y": "1"}, x="1", y="1")
    assert sorted(faults(alone, both)) == ["1/x is on CPUs of 2/y", "2/y is on CPUs of 1/x"]


def test_an_owner_is_not_to_be_moved():
    assert faults(shot(1, {"1/x": "1"}, x="1"), shot(2, {}, x="0-1")) == ["1/x moved from 1 to 0-1"]
    assert faults(shot(1, {"1/x": "1"}, x="0-1"), shot(2, {"1/x": "1"}, x="1")) == []


def test_what_the_test_moved_counts_again_once_it_is_back():
    owned = {"1/x": "1"}
    drifts = ((1.9, 2.0, "x"),)
    before, after = shot(1, owned, x="1"), shot(2.1, owned, x="0-1")
    assert faults(before, after, drifts=drifts) == []
    back = shot(2.2, owned, x="1")
    assert faults(before, after, back, shot(3, owned, x="0"), drifts=drifts) == ["1/x moved from 1 to 0"]


def test_a_reading_that_changed_while_it_was_taken_proves_nothing():
    moving = shot(2, {"1/x": "1"}, second={"x": "1", "p": "0"}, x="1", p="0-1")
    assert faults(shot(1, {"1/x": "1"}, x="1", p="0"), moving) == []


def test_a_write_is_not_to_precede_the_ledger_on_disk():
    def write(cpus: str, **ledger: str) -> dict:
        owned = {f"{name[1]}/{name[0]}": value for name, value in ledger.items()}
        return shot(1, owned) | {"step": "cgroup:before", "about": f"/sys/fs/cgroup/x/cpuset.cpus {cpus}"}

    assert faults(write("1", x1="1"), write("0"), write("0-1"), write("0-1", y2="1")) == []
    against = "1/x gets CPUs 1 against the ledger on disk"
    assert faults(write("1"), write("1", y2="1")) == [against, against]
