import json

import pytest

from corelane.machine import MachineError
from corelane.machine.jsonform import to_dict
from corelane.machine.sources import load
from corelane.machine.spec import parse_spec
from support import sysfs

SPEC = "socket:2 numa:1 core:4 smt:2"


@pytest.fixture
def files():
    return sysfs.files(parse_spec(SPEC))


def same(machine):
    return machine.cpus == parse_spec(SPEC).cpus and machine.nodes == parse_spec(SPEC).nodes


def test_nothing_means_this_machine():
    assert load().online == load("").online == load(None).online


def test_a_spec_may_be_given_or_lie_in_a_file(tmp_path):
    (tmp_path / "big.txt").write_text("// two sockets\nsocket:2 numa:1\ncore:4 smt:2\n")
    machine = load(str(tmp_path / "big.txt"))
    assert same(load(SPEC))
    assert same(machine)
    assert machine.name == "big"


@pytest.mark.parametrize("inner", ["", "sys", "..", "deep"])
def test_a_directory_may_be_the_parent_of_sys_or_sys_itself_or_one_above(files, tmp_path, inner):
    root = tmp_path / "up" / "snap" if inner == ".." else tmp_path / "snap"
    sysfs.write(root, files)
    given = {"": root, "sys": root / "sys", "..": root.parent, "deep": root}[inner]
    machine = load(str(given))
    assert same(machine)
    assert machine.name == ("sys" if inner == "sys" else "snap")


@pytest.mark.parametrize("prefix", ["", "snap/", "./snap/"])
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_of_such_a_directory_does(files, tmp_path, prefix, mode):
    machine = load(str(sysfs.pack(tmp_path / "m.tar.any", files, prefix, mode)))
    assert same(machine)
    assert machine.name == ("snap" if prefix else "m")


def test_of_several_machines_in_one_place_one_must_be_named(files, tmp_path):
    both = {f"{name}/{path}": text for name in ("a", "b") for path, text in files.items()}
    sysfs.write(tmp_path / "dir", both)
    archive = sysfs.pack(tmp_path / "m.tar.gz", both, "all/")
    with pytest.raises(
        MachineError, match=r"holds several machines \(.*/a, .*/b\); give that directory itself"
    ):
        load(str(tmp_path / "dir"))
    with pytest.raises(
        MachineError, match=r"holds several machines \(all/a, all/b\); name one, as in .*#all/a"
    ):
        load(str(archive))
    with pytest.raises(MachineError, match="holds several machines"):
        load(f"{archive}#c")
    assert same(load(f"{archive}#b"))
    assert load(f"{archive}#all/b").source == f"{archive}#all/b"


def test_json_that_we_print_reads_back(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(to_dict(parse_spec(SPEC))))
    assert load(str(tmp_path / "m.json")) == parse_spec(SPEC)
    (tmp_path / "m.json").write_text(json.dumps(to_dict(parse_spec(SPEC)))[:-9])
    with pytest.raises(MachineError, match=r"m\.json: not valid JSON"):
        load(str(tmp_path / "m.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "not recognised; a machine is a spec"),
        (b"", "not recognised"),
        (b"\x00\xff\xfe" * 100, "not recognised"),
        (b"\x1f\x8bnot really", "not a complete tar archive"),
        (b'{"kind": "Pod"}', "not recognised"),
        (b"socket:2 core:no", "needs a count"),
        (b"root:x:0:0:root\n" + b"bin:x:1:1:bin\n" * 1000, "'root:x:0:0:root' is none of its words"),
    ],
)
def test_files_that_are_no_machine_are_named_and_say_what_is(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(MachineError) as caught:
        load(str(tmp_path / "x"))
    assert message in str(caught.value)
    assert str(tmp_path / "x") in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("source", ["/no/such/dir", "nonsense", "x\0y", "a" * 5000, "/proc/self/mem", "."])
def test_sources_that_cannot_be_read_are_named(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError) as caught:
        load(source)
    assert source[:10] in str(caught.value)


def test_a_machine_of_256_cpus_is_read_from_an_archive(tmp_path):
    machine = parse_spec("socket:2 numa:4 core:16 smt:2")
    archive = sysfs.pack(tmp_path / "m.tar.bz2", sysfs.files(machine), mode="w:bz2")
    assert load(str(archive)).cpus == machine.cpus
