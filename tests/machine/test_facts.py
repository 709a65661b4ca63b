"""What the CPUs of a machine are called, from files as kernels write them."""

from corelane.machine import facts
from corelane.machine.facts import CPUFacts


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_facts_of_an_intel_machine(tmp_path):
    write(
        tmp_path,
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU @ 2.5GHz\n\n"
        "processor\t: 1\nvendor_id\t: X\nmodel name\t: Y\n" + "x" * 100_000,
    )
    write(tmp_path, "sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
    write(tmp_path, "sys/fs/resctrl/info/L3/cbm_mask", "7ff\n")
    assert facts.read(tmp_path) == CPUFacts("Some CPU @ 2.5GHz", "GenuineIntel", True, "7ff")
    write(tmp_path, "sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
    assert not facts.read(tmp_path).turbo


def test_facts_of_other_machines(tmp_path):
    write(tmp_path, "proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/boost", "1\n")
    assert facts.read(tmp_path) == CPUFacts("", "0x41", True)


def test_what_cannot_be_read_is_left_empty(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_bytes(b"model name : \xff\xfe\n")
    assert facts.read(tmp_path / "nowhere") == CPUFacts()
    assert facts.read(tmp_path).vendor == ""
