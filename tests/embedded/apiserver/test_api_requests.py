import pytest
from multidict import MultiDict

from corelane.embedded.apiserver import api_requests
from corelane.embedded.apiserver.api_requests import ITEM, methods, parse
from corelane.embedded.apiserver.status_errors import StatusError

POD = "/api/v1/namespaces/n/pods/p"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (POD, ITEM),
        ("/api/v1/namespaces/n/pods", ("GET", "POST", "DELETE")),
        ("/api/v1/pods", ("GET",)),
        ("/api/v1/pods/p", ()),
        ("/api/v1/nodes", ("GET", "POST", "DELETE")),
        ("/api/v1/namespaces/n/nodes", ()),
        ("/api/v1/namespaces", ("GET", "POST")),
        ("/api/v1/namespaces/n/finalize", ("PUT",)),
        (f"{POD}/status", ("GET", "PUT", "PATCH")),
        (f"{POD}/binding", ("POST",)),
        (f"{POD}/log", ("GET",)),
        (f"{POD}/log/more", ()),
        (f"{POD}/exec", ("GET", "POST")),
        (f"{POD}/nosuch", ()),
        ("/api/v1/namespaces/n/bindings", ("POST",)),
        ("/api/v1/namespaces/n/bindings/b", ()),
        ("/api/v1/watch/pods", ("GET",)),
        ("/api/v1/nosuch", ()),
        ("/api/v1//nodes", ()),
    ],
)
def test_a_route_has_its_methods(path, expected):
    assert methods(parse(path, "GET", {})) == expected


def test_write_options_are_checked():
    options = api_requests.write_options({"fieldValidation": "Strict"}, "CreateOptions", ["All"])
    assert (options.dry_run, options.field_validation) == (True, "Strict")
    for query, dry_run in (
        ({"fieldValidation": "strict"}, []),
        ({"fieldManager": "m" * 129}, []),
        ({"fieldManager": "a\nb"}, []),
        ({}, ["Some"]),
    ):
        with pytest.raises(StatusError) as error:
            api_requests.write_options(MultiDict(query), "CreateOptions", dry_run)
        assert error.value.code == 422


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "", "٣"])
def test_a_revision_is_a_number_of_ascii_digits(text):
    with pytest.raises(ValueError):
        api_requests.revision(text)


def test_a_revision_has_64_bits():
    assert api_requests.revision(str(2**64 - 1)) == 2**64 - 1
    for text in (str(2**64), "9" * 5000):
        with pytest.raises(ValueError, match="is not an unsigned integer of 64 bits"):
            api_requests.revision(text)


@pytest.mark.parametrize(("text", "expected"), [("", True), ("1", True), ("false", False), ("0", False)])
def test_a_flag_without_a_value_is_true(text, expected):
    assert api_requests.flag({"watch": text}, "watch") is expected
