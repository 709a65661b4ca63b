import pytest
from multidict import MultiDict

from corelane.embedded.apiserver import api_requests
from corelane.embedded.apiserver.api_requests import ITEM, methods, parse
from corelane.embedded.apiserver.status_errors import StatusError

POD = "/api/v1/namespaces/n/pods/p"


@pytest.mark.parametrize(
    ("method", "path", "verb", "resource", "subresource", "namespace", "name"),
    [
        ("GET", "/api/v1/pods", "list", "pods", "", "", ""),
        ("GET", "/api/v1/namespaces/n/pods/", "list", "pods", "", "n", ""),
        ("GET", POD, "get", "pods", "", "n", "p"),
        ("GET", f"{POD}/status", "get", "pods", "status", "n", "p"),
        ("POST", f"{POD}/binding", "create", "pods", "binding", "n", "p"),
        ("DELETE", "/api/v1/namespaces/n/pods", "deletecollection", "pods", "", "n", ""),
        ("DELETE", POD, "delete", "pods", "", "n", "p"),
        ("GET", "/api/v1/namespaces/n", "get", "namespaces", "", "n", "n"),
        ("PUT", "/api/v1/namespaces/n/finalize", "update", "namespaces", "finalize", "n", "n"),
        ("GET", "/api/v1/watch/namespaces/n/pods/p", "watch", "pods", "", "n", "p"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "get", "leases", "", "n", "l"),
        ("TRACE", POD, "", "pods", "", "n", "p"),
    ],
)
def test_a_path_is_taken_apart(method, path, verb, resource, subresource, namespace, name):
    target = parse(path, method, {})
    found = (target.verb, target.resource, target.subresource, target.namespace, target.name)
    assert found == (verb, resource, subresource, namespace, name)
    assert target.kind is not None


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/x/v1", "/version", "//api/v1/pods", "/api/v1/watch"]
)
def test_other_paths_are_no_resources(path):
    assert not parse(path, "GET", {}).is_resource


def test_a_watch_parameter_or_a_name_in_the_selector_changes_what_is_asked():
    assert parse("/api/v1/pods", "GET", {"watch": ""}).verb == "watch"
    assert parse("/api/v1/pods", "GET", {"watch": "false"}).verb == "list"
    assert parse(POD, "GET", {"watch": "1"}).verb == "get"
    target = parse("/api/v1/pods", "GET", {"fieldSelector": "metadata.name=x"})
    assert (target.name, target.named) == ("x", False)


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


def faults(query, *, watch):
    with pytest.raises(StatusError) as error:
        api_requests.list_options(query, watch=watch)
    return error.value


def test_list_options_are_read():
    query = {"limit": "5", "continue": "x", "labelSelector": "a=b", "timeoutSeconds": "9"}
    options = api_requests.list_options(query, watch=False)
    assert (options.limit, options.continuation, options.timeout) == (5, "x", 9)
    assert not options.selection.empty


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
def test_numbers_must_be_numbers(name):
    for text in ("ten", "", " 5", "1_0", "5.0"):
        error = faults({name: text}, watch=False)
        assert error.code == 400
        assert error.message == f'{name}: "{text}" is not an integer of 64 bits'
    assert faults({name: "9" * 5000}, watch=False).code == 400
    assert api_requests.integer({name: "-" + str(2**63)}, name) == -(2**63)


def test_a_wrong_number_is_found_before_a_wrong_selector():
    error = faults({"labelSelector": "a b", "limit": "x"}, watch=False)
    assert error.message == 'limit: "x" is not an integer of 64 bits'


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
