from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError


def test_a_status_says_everything_in_upstreams_order():
    body = status_errors.not_found("leases", "coordination.k8s.io", "l").body()
    assert list(body) == ["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"]
    assert body["message"] == 'leases.coordination.k8s.io "l" not found'
    assert body["details"] == {"name": "l", "group": "coordination.k8s.io", "kind": "leases"}


def test_details_are_left_out_or_empty_by_case():
    assert "details" not in status_errors.bad_request("no").body()
    assert status_errors.method_not_allowed().body()["details"] == {}


def test_one_fault_stands_alone_and_several_in_brackets_without_repeats():
    one, other = (
        StatusCause("FieldValueRequired", "Required value", "a"),
        StatusCause("FieldValueInvalid", "bad", "b"),
    )
    assert status_errors.invalid("Pod", "", "p", [one]).message == 'Pod "p" is invalid: a: Required value'
    several = status_errors.invalid("Pod", "", "p", [one, other, other])
    assert several.message == 'Pod "p" is invalid: [a: Required value, b: bad]'
    assert len(several.body()["details"]["causes"]) == 3


def test_a_message_can_be_raised_and_read():
    error = StatusError(418, "Teapot", "short and stout")
    assert str(error) == "short and stout"
