"""Message classes built from a table of field numbers."""

import pytest

from corelane.runtime.protobuf_table import MessageTable
from support.protobuf import encode, strings

TABLE = MessageTable(
    "corelane.test.v1",
    {
        "Inner": {"value": (1, "int64")},
        "Outer": {
            "name": (1, "string"),
            "ids": (3, "[int64]"),
            "inner": (4, "Inner"),
            "all": (5, "[Inner]"),
            "labels": (6, "strings"),
            "raw": (7, "bytes"),
        },
    },
)


def test_bytes_of_a_message_decode_by_the_tables_field_numbers():
    body = encode(
        {1: "a", 2: "not in the table", 4: {1: 7}, 5: [{1: 1}, {1: 2}], 6: strings({"k": "v"}), 7: "x"}
    )
    outer = TABLE.message("Outer").FromString(body)
    assert outer.name == "a"
    assert outer.inner.value == 7
    assert [inner.value for inner in outer.all] == [1, 2]
    assert dict(outer.labels) == {"k": "v"}
    assert outer.raw == b"x"


def test_lists_of_integers_decode_packed_and_unpacked():
    outer = TABLE.message("Outer")
    assert list(outer.FromString(encode({3: [4, 5]})).ids) == [4, 5]
    assert list(outer.FromString(outer(ids=[4, 5]).SerializeToString()).ids) == [4, 5]


def test_a_message_that_the_table_lacks_is_an_error():
    with pytest.raises(KeyError):
        TABLE.message("Missing")
