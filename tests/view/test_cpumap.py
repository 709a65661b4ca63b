from dataclasses import replace
from io import StringIO

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.view.cpumap import Owner, cpumap

SERVER = parse_spec("socket:1 numa:2 l3:2 core:4 smt:2")
APP, POOL, SYSTEM = Owner("shop/app/main", "LSE"), Owner("shared pool", "shared"), Owner("system", "reserved")


def owners(**lists):
    known = {"app": APP, "pool": POOL, "system": SYSTEM}
    return {cpu: known[name] for name, cpus in lists.items() for cpu in CPUSet.parse(cpus)}


def test_the_map_has_a_row_for_each_node_a_cell_for_each_core_a_letter_for_each_thread():
    text = cpumap(SERVER, owners(system="0,16", app="1-2,17-18,3", pool="8-15,24-31"), markup=False)
    assert text == (
        "node 0 RR AA AA A· | ·· ·· ·· ··  0-7,16-23\n"
        "node 1 ░░ ░░ ░░ ░░ | ░░ ░░ ░░ ░░  8-15,24-31\n"
        "\n"
        "  A  shop/app/main  LSE  1-3,17-18 (5 CPUs)\n"
        "  R  system  0,16 (2 CPUs)\n"
        "  ░  shared pool  8-15,24-31 (16 CPUs)\n"
        "  ·  no owner  4-7,19-23 (9 CPUs)\n"
    )


def test_lines_break_between_l3_domains_if_possible():
    text = cpumap(SERVER, markup=False, width=24)
    assert text.splitlines()[:4] == [
        "node 0 ·· ·· ·· ··",
        "       ·· ·· ·· ··",
        "node 1 ·· ·· ·· ··",
        "       ·· ·· ·· ··",
    ]


def test_the_legend_has_offline_cpus_and_those_not_allowed_to_the_process():
    machine = replace(parse_spec("core:4"), allowed=CPUSet([0, 1, 2]), offline=CPUSet([4]))
    lines = cpumap(machine, markup=False).splitlines()
    assert lines[0] == "node 0 · · · ✕  0-3"
    assert lines[-2:] == ["  ✕  not allowed to this process  3 (1 CPU)", "     offline  4 (1 CPU)"]


def test_long_lists_of_cpus_break_after_commas():
    odd = CPUSet(range(1, 32, 2))
    lines = cpumap(SERVER, dict.fromkeys(odd, APP), markup=False, width=50).splitlines()
    assert lines[3:6] == [
        "  A  shop/app/main  LSE  1,3,5,7,9,11,13,15,17,",
        "       19,21,23,25,27,29,31 (16 CPUs)",
        "  ·  no owner  0,2,4,6,8,10,12,14,16,18,20,22,",
    ]


def rendered(text, width):
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(text, end="", soft_wrap=True)
    return out.getvalue()


names = st.text(alphabet=st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=60)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.integers(0, 40), st.builds(Owner, names, st.sampled_from(["LSE", "shared", ""]))))
def test_markup_renders_to_the_plain_map_whatever_the_names(found):
    plain = cpumap(SERVER, found, markup=False, width=80)
    assert rendered(cpumap(SERVER, found, width=80), 200) == plain
    assert all(len(line) <= 80 for line in plain.splitlines())


def test_names_cannot_smuggle_markup():
    text = cpumap(SERVER, {0: Owner("[red]x[/red][link=http://evil]")})
    assert "[red]x[/red][link=http://evil]" in rendered(text, 200)
