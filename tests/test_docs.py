"""README, CHANGELOG and docs: links resolve, pages open with commands and are short, indexes are whole."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.reasons import Code, Reason, label

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
ALL = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *PAGES,
    *REFERENCE,
    *sorted((ROOT / "examples").rglob("*.md")),
]
TEN_MINUTES = 2_000
"""Words that are read in ten minutes."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6} (.+)")


def outside_of_code(text: str) -> list[str]:
    """Return the lines that are not in fenced code."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            lines.append(line)
    return lines


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as GitHub and GitLab make them."""
    titles = [
        match[1] for line in outside_of_code(page.read_text()) if (match := HEADING.fullmatch(line.strip()))
    ]
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return [re.sub(r"[^\w\- ]", "", word).replace(" ", "-") for word in words]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", ALL, ids=name)
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    broken = []
    for link in LINK.findall("\n".join(outside_of_code(page.read_text()))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", ALL, ids=name)
def test_a_page_has_each_heading_once(page: Path) -> None:
    titles = anchors(page)
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=name)
def test_a_page_opens_with_commands_and_is_read_in_ten_minutes(page: Path) -> None:
    text = page.read_text()
    assert "\n```" in text.split("\n## ")[0]
    assert len(text.split()) <= TEN_MINUTES


@pytest.mark.parametrize("index", [DOCS / "README.md", DOCS / "reference" / "README.md"], ids=name)
def test_an_index_names_every_page_beside_it(index: Path) -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text())}
    assert {page.name for page in index.parent.glob("*.md")} - {index.name} <= linked


def test_source_names_only_modules_that_exist() -> None:
    """`room.module` in a docstring, and `room.module.name`; a room is a package or module of corelane."""
    home = DOCS.parent / "src/corelane"
    rooms = "|".join(sorted(path.stem for path in home.iterdir() if not path.name.startswith("_")))
    named, broken = re.compile(rf"``?((?:{rooms})(?:\.[a-z_]\w*)+)``?"), []
    for path in home.rglob("*.py"):
        for reference in {*named.findall(path.read_text())} - {"limits.cpu", "runtime.v1"}:
            parts = reference.split(".")
            modules = [home.joinpath(*parts[:size]) for size in range(len(parts), 0, -1)]
            place = next(
                module for module in modules if module.is_dir() or module.with_suffix(".py").exists()
            )
            text = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text()
            rest = parts[len(place.relative_to(home).parts) :]
            if not all(re.search(rf"\b{name}\b", text) for name in rest):
                broken.append((str(path.relative_to(home)), reference))
    assert broken == []


def test_source_names_only_pages_that_exist() -> None:
    named = re.compile(r"(?<!driver: )\bdocs/[\w/-]+\.md")
    files = [
        path
        for folder in ("src", "tests", "bench", "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml")
    ]
    missing = {
        f"{name(path)}: {page}"
        for path in files
        for page in named.findall(path.read_text())
        if not (ROOT / page).exists()
    }
    assert missing == set()


def test_the_house_of_contributing_has_the_rooms_of_the_tree() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    house = text.split("## The house")[1].split("\n## ")[0]
    source = ROOT / "src" / "corelane"
    folders = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    rows = [line.split("|")[1] for line in house.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == folders | modules
    assert folders <= set(re.findall(r"\w+", house.split("```")[1]))


REASON_AT = {
    "PublishEvent": 1,
    "PublishCondition": 2,
    "RecordPodEvent": 2,
    "RecordNodeEvent": 1,
    "RuntimeFailure": 0,
    "StatusReason": 0,
    "_event": 0,
    "_rebase": 3,
    "_record": 1,
    "_warn": -3,
    "record": 1,
}
"""Calls that make an event or a reason, and which of their arguments is its name."""


def reasons(path: Path) -> Iterator[str]:
    """Yield the names of events and reasons in calls of a file."""
    for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in REASON_AT and len(call.args) >= abs(REASON_AT[name]):
            for node in ast.walk(ast.Tuple(call.args[REASON_AT[name] :][:1])):
                if isinstance(node, ast.Constant) and re.fullmatch("[A-Z][A-Za-z]+", str(node.value)):
                    yield str(node.value)


def test_every_event_and_reason_is_in_the_reference() -> None:
    source = ROOT / "src" / "corelane"
    rooms = ("agent", "scheduler", "runtime", "embedded/pods", "embedded/containers", "embedded/up")
    made = {reason for room in rooms for path in (source / room).rglob("*.py") for reason in reasons(path)}
    labels = {label(Reason(code, ("",))) for code in Code}
    refusals = {word for word in labels if word[:1].isupper()}
    words = set(re.findall(r"`(\w+)`", (DOCS / "reference" / "messages.md").read_text()))
    assert len(made) > 40
    assert (made | refusals) - {"OutOf", "True", "False", "None"} <= words
