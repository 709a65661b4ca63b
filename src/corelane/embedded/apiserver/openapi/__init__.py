"""The API described for its clients: OpenAPI v3 and v2, made from the tables of kinds and schemas."""

from corelane.embedded.apiserver.openapi.documents import v2_json, v2_protobuf, v3_group, v3_root

__all__ = ["v2_json", "v2_protobuf", "v3_group", "v3_root"]
