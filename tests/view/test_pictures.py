"""The pictures of README and docs are what the commands draw today."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = runpy.run_path(str(ROOT / "bench" / "pictures.py"))["PICTURES"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_committed_picture_is_what_its_command_draws(name: str) -> None:
    assert (ROOT / "docs" / "images" / name).read_text() == PICTURES[name](), "run `make pictures`"


def test_every_picture_of_the_docs_is_drawn_by_a_command() -> None:
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} == set(PICTURES)
