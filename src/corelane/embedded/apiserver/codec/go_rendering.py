"""Values in messages of validation, as they are."""

from typing import Any

from corelane.embedded.apiserver.schema.notation import FieldRow, ObjectType


def rendered(_record: ObjectType, obj: Any) -> Any:
    return obj


def difference(_record: ObjectType, _old: Any, _new: Any) -> str:
    return ""


def field(_row: FieldRow, value: Any) -> Any:
    return value
