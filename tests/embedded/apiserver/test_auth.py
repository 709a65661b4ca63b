import pytest

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User, authenticate, authorize
from corelane.embedded.apiserver.status_errors import StatusError

ADMIN = User("admin", ("system:masters",))
VIEWER = User("viewer")
TOKENS = {"secret": ADMIN, "other": VIEWER}


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", "  Bearer secret  ", "Bearer secret x"])
def test_a_bearer_token_names_its_user(header):
    assert authenticate(header, TOKENS) == ADMIN


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "secret"])
def test_without_a_token_nobody_is_known(header):
    assert authenticate(header, TOKENS) == ANONYMOUS


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer secre", "Bearer sécret", "Bearer \udce9"])
def test_a_wrong_token_is_refused(header):
    with pytest.raises(StatusError) as error:
        authenticate(header, TOKENS)
    assert (error.value.code, error.value.reason) == (401, "Unauthorized")


def refusal(user, method, path, query=None):
    with pytest.raises(StatusError) as error:
        authorize(user, parse(path, method, query or {}))
    assert error.value.code == 403
    return error.value.message


def test_others_are_told_what_they_may_not_do():
    assert refusal(VIEWER, "GET", "/api/v1/namespaces/n/pods/p") == (
        'pods "p" is forbidden: User "viewer" cannot get resource "pods" in API group "" in the namespace "n"'
    )
    assert refusal(VIEWER, "POST", "/api/v1/namespaces/n/pods/p/binding") == (
        'pods "p" is forbidden: User "viewer" cannot create resource "pods/binding" in API group "" '
        'in the namespace "n"'
    )
    assert refusal(ANONYMOUS, "GET", "/apis/coordination.k8s.io/v1/leases", {"watch": "1"}) == (
        'leases.coordination.k8s.io is forbidden: User "system:anonymous" cannot watch resource "leases" in '
        'API group "coordination.k8s.io" at the cluster scope'
    )
