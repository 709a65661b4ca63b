"""The manifests in `examples/`, which the package contains too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")  # installed; in a checkout


def load(name: str) -> list[dict[str, Any]]:
    """Return the objects of one example, such as "batch". Raises FileNotFoundError."""
    for place in _PLACES:
        path = place / f"{name}.yaml"
        if path.is_file():
            return [document for document in yaml.safe_load_all(path.read_text()) if document]
    raise FileNotFoundError(f"no example {name!r}: looked in {', '.join(map(str, _PLACES))}")
