"""Bodies and stored objects: JSON, YAML and protobuf in, plain values by the schema tables, bytes out."""
