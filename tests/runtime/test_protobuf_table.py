"""Protobuf answers of runtimes and kubelets: bytes that are not UTF-8 spoil no other part of an answer."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime import podresources
from corelane.runtime.cri import messages as cri
from corelane.runtime.nri import messages as nri

TABLES = [
    (cri, "ListContainersResponse"),
    (cri, "ContainerStatusResponse"),
    (cri, "ListPodSandboxResponse"),
    (cri, "TaskEvent"),
    (podresources, "ListPodResourcesResponse"),
    (nri, "SynchronizeRequest"),
]


def containers() -> bytes:
    answer = cri.message("ListContainersResponse")()
    for name in ("good", "BAD"):
        one = answer.containers.add(id=name)
        one.metadata.name = name
        one.labels["key"] = name
        one.annotations[name] = "value"
    return answer.SerializeToString()


def test_a_string_that_is_not_utf8_is_repaired_and_the_rest_is_as_sent() -> None:
    data = containers().replace(b"BAD", b"\xff\xfe\xc3")
    with pytest.raises(DecodeError):
        cri.message("ListContainersResponse").FromString(data)
    good, bad = cri.parse("ListContainersResponse", data).containers
    assert (good.id, good.metadata.name, dict(good.labels)) == ("good", "good", {"key": "good"})
    assert (bad.id, bad.metadata.name) == ("\ufffd" * 3, "\ufffd" * 3)
    assert (dict(bad.labels), dict(bad.annotations)) == ({"key": "\ufffd" * 3}, {"\ufffd" * 3: "value"})


def test_a_sound_answer_is_parsed_as_protobuf_does() -> None:
    data = containers()
    assert cri.parse("ListContainersResponse", data) == cri.message("ListContainersResponse").FromString(data)


@pytest.mark.parametrize(("module", "name"), TABLES, ids=lambda value: getattr(value, "__name__", value))
@given(data=st.binary(max_size=60) | st.just(b"\x0b" * 5000) | st.just(b"\x0a\xff\xff\xff\xff\x0f"))
def test_any_bytes_are_a_message_or_a_value_error(module, name, data: bytes) -> None:
    try:
        module.parse(name, data).SerializeToString()
    except ValueError as error:
        assert name in str(error)
