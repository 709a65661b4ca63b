"""YAML within bounds, and YAML in which a key may occur once: of two values, one would be lost silently.

Whatever the text holds, loading it raises yaml.YAMLError alone. PyYAML's own loaders let ValueError and
others through for dates, numbers and tags, RecursionError for deep nesting, and follow aliases without end.
"""

from typing import Any, Final

import yaml

MOST_NODES: Final = 1_000_000
"""Most values of a document, with its aliases and merge keys expanded."""


class DuplicateKeyError(yaml.YAMLError):
    """A key that occurs twice in the mapping that begins on `line` (from 1)."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"{key}: is given twice (mapping from line {line}); give it once")


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that raises YAMLError alone, also for a document that expands beyond any use."""

    def compose_document(self) -> Any:
        try:
            node = super().compose_document()
            _expanded(node, {})
        except RecursionError:
            raise yaml.YAMLError("nested too deeply, or within itself") from None
        return node

    def construct_document(self, node: Any) -> Any:
        try:
            return super().construct_document(node)
        except RecursionError:
            raise yaml.YAMLError("nested too deeply") from None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise yaml.YAMLError(f"a value is not what its form says: {error!r}") from None


class UniqueKeyLoader(BoundedLoader):
    """A BoundedLoader that raises DuplicateKeyError."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise DuplicateKeyError(key.value, node.start_mark.line + 1)
            seen.add((key.tag, key.value))
        return node


def load_bounded(text: str | bytes) -> list[Any]:
    """Return the documents of a text, which may be JSON. Raises yaml.YAMLError."""
    try:
        return list(yaml.load_all(text, BoundedLoader))
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"not UTF-8 text: {error}") from None


def _expanded(node: Any, known: dict[int, int]) -> int:
    """Return the number of values that a node stands for. Raises YAMLError, RecursionError."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if (size := known.get(id(node))) is None:
        known[id(node)] = MOST_NODES + 1  # of a node within itself
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        known[id(node)] = size = 1 + sum(_expanded(part, known) for part in parts)
    if size > MOST_NODES:
        raise yaml.YAMLError(f"its aliases expand to more than {MOST_NODES:,} values")
    return size
