"""The tables of NodeResourceTopology say what its CustomResourceDefinition says, field by field."""

from pathlib import Path
from typing import Any

import pytest

from corelane.embedded.apiserver.schema import kinds
from corelane.embedded.apiserver.schema.notation import ListType, ObjectType, Shape
from support import openapi

CRD = Path(__file__).parents[3] / "deploy/noderesourcetopologies.yaml"
TYPES = {"string": "string", "int64": "integer"}


def as_schema(shape: Shape, pattern: str = "") -> dict[str, Any]:
    """A shape in OpenAPI's words, without descriptions."""
    if isinstance(shape, ObjectType):
        rows = [row for row in shape if row.name not in ("apiVersion", "kind", "metadata")]
        return {
            "type": "object",
            "required": sorted(row.name for row in rows if row.required),
            "properties": {row.name: as_schema(row.shape, row.pattern) for row in rows},
        }
    if isinstance(shape, ListType):
        return {"type": "array", "items": as_schema(shape.item)}
    if getattr(shape, "name", "") == "int-or-string":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": pattern}
    return {"type": TYPES[shape.name]}


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition's schema without what the tables do not hold."""
    kept = {name: schema[name] for name in ("type", "anyOf", "pattern") if name in schema}
    if "items" in schema:
        kept["items"] = plain(schema["items"])
    if "properties" in schema:
        inner = {k: v for k, v in schema["properties"].items() if k not in ("apiVersion", "kind", "metadata")}
        kept["required"] = sorted(schema.get("required", ()))
        kept["properties"] = {name: plain(one) for name, one in inner.items()}
    return kept


@pytest.mark.parametrize(
    ("version", "table"), [("v1alpha1", kinds.TOPOLOGY_V1ALPHA1), ("v1alpha2", kinds.TOPOLOGY_V1ALPHA2)]
)
def test_tables_and_definition_agree(version: str, table: ObjectType) -> None:
    assert as_schema(table) == plain(openapi.schemas(CRD.read_text())[version])
