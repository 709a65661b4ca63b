import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine.model import NUMANode
from corelane.machine.spec import parse_spec
from corelane.view.cpumap import Owner, legend
from corelane.view.svg import svg

SVG = "{http://www.w3.org/2000/svg}"
SERVER = parse_spec("socket:2 numa:2 l3:2 core:4 smt:2 mem:64G", name="server")


def drawn(machine, owners=None):
    return ElementTree.fromstring(svg(machine, owners))


def rects(root, css):
    return [rect for rect in root.iter(f"{SVG}rect") if css in rect.get("class", "").split()]


def box(rect):
    return [float(rect.get(key)) for key in ("x", "y", "width", "height")]


def inside(inner, outer):
    (x, y, w, h), (ox, oy, ow, oh) = inner, outer
    return ox <= x and oy <= y and x + w <= ox + ow and y + h <= oy + oh


def apart(one, other):
    (x, y, w, h), (ox, oy, ow, oh) = one, other
    return x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y


def test_every_unit_is_drawn_once():
    root = drawn(SERVER)
    assert [len(rects(root, css)) for css in ("socket", "numa", "l3", "core", "free")] == [2, 4, 8, 32, 64]
    ids = {text.text for text in root.iter(f"{SVG}text") if "id" in text.get("class").split()}
    assert ids == {str(cpu) for cpu in range(64)}


@pytest.mark.parametrize(
    "spec", ["core:1", "core:2", "core:4 smt:2", "core:3 smt:8", "socket:2 numa:4 core:16 smt:2"]
)
def test_boxes_lie_within_their_parents_and_apart_from_one_another(spec):
    root = drawn(parse_spec(spec))
    width, height = float(root.get("width")), float(root.get("height"))
    cores, threads = [box(r) for r in rects(root, "core")], [box(r) for r in rects(root, "free")]
    frames = [box(r) for css in ("socket", "numa", "l3") for r in rects(root, css)]
    assert all(inside(b, [0, 0, width, height]) for b in cores + threads + frames)
    assert all(sum(inside(t, c) for c in cores) == 1 for t in threads)
    assert all(any(inside(c, f) for f in frames) for c in cores)
    assert all(apart(a, b) for i, a in enumerate(cores) for b in cores[:i])


def test_owners_colour_their_threads_and_stand_in_the_legend():
    app, pool = Owner("shop/app/main", "LSE"), Owner("shared pool", "shared")
    root = drawn(SERVER, {0: app, 32: app, 1: pool, 99: Owner("gone")})
    assert [len(rects(root, css)) for css in ("o0", "shared", "free")] == [2 + 1, 1 + 1, 61 + 1]
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "shop/app/mainLSE · 2 CPUs" in texts
    assert "shared pool1 CPU" in texts
    assert "no owner61 CPUs" in texts


def test_kinds_of_cores_are_tinted_when_owners_are_not_asked_for():
    cpus = tuple(
        replace(cpu, kind="P" if cpu.core < 2 else "E", max_khz=5_000_000)
        for cpu in parse_spec("core:4").cpus
    )
    hybrid = replace(parse_spec("core:4"), cpus=cpus)
    root = drawn(hybrid)
    assert [len(rects(root, css)) for css in ("p", "e")] == [3, 3]
    assert "P-core2 cores · up to 5000 MHz" in ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert [len(rects(drawn(hybrid, {}), css)) for css in ("p", "e")] == [0, 0]


def test_memory_only_nodes_isolated_forbidden_and_offline_cpus_show():
    machine = parse_spec("core:4")
    machine = replace(
        machine,
        nodes=(*machine.nodes, NUMANode(1, CPUSet(), 1 << 37)),
        isolated=CPUSet([1]),
        allowed=CPUSet([0, 1]),
        offline=CPUSet([9]),
    )
    text = svg(machine)
    assert "NUMA node 1" in text
    assert "128 GiB, no CPUs" in text
    assert text.count('class="free isolated"') == 2
    assert text.count('<g class="barred">') == 2
    assert "offline, not drawn" in text


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=40), st.text(max_size=20))
def test_any_name_gives_well_formed_xml(name, qos):
    root = drawn(replace(SERVER, name=name), {0: Owner(name, qos)})
    assert root.tag == f"{SVG}svg"
    assert not re.search(
        "script|onload", svg(SERVER, {0: Owner("<script onload=x>")}).replace("&lt;script onload", "")
    )


def test_dark_backgrounds_have_colours_of_their_own():
    style = drawn(SERVER).find(f"{SVG}style").text
    light, dark = style.split("@media (prefers-color-scheme:dark){")
    for css in ("bg", "fg", "muted", "socket", "numa", "l3", "core", "free", "free-text", "shared"):
        assert re.search(rf"\.{css}{{[^}}]+}}", light)
        assert re.search(rf"\.{css}{{[^}}]+}}", dark)


def luminance(colour):
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_hundred_owners_have_readable_colours_of_their_own():
    machine = parse_spec("core:100")
    entries = legend(machine, {cpu: Owner(f"pod-{cpu}") for cpu in range(100)})
    assert len({entry.colour for entry in entries.values()}) == 100
    for entry in entries.values():
        dark, light = sorted((luminance(entry.colour), luminance(entry.text_colour)))
        assert (light + 0.05) / (dark + 0.05) >= 3.8
