import pytest

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User, authorize
from corelane.embedded.apiserver.status_errors import StatusError

VIEWER = User("viewer")


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
