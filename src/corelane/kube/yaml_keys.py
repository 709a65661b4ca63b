"""YAML in which a key may occur once in a mapping: of two values, one would be lost without a message."""

from typing import Any

import yaml


class DuplicateKeyError(yaml.YAMLError):
    """A key that occurs twice in a mapping, the second time on line `line` (from 1)."""

    def __init__(self, key: str, line: int, mapping_line: int) -> None:
        super().__init__(f"line {line}: key {key!r} occurs twice in a mapping; keep one")
        self.key = key
        self.line = line
        self.mapping_line = mapping_line
        """Line where the mapping begins, from 1."""


class UniqueKeyLoader(yaml.SafeLoader):
    """A SafeLoader that raises DuplicateKeyError."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                line = key.start_mark.line + 1
                raise DuplicateKeyError(key.value, line, node.start_mark.line + 1)
            seen.add((key.tag, key.value))
        return node
