"""Reviews: who calls, and what the caller may do; the answers agree with what the server then allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http import auth
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.status_errors import StatusError

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
USERS = (User("admin", ("system:masters",)), User("viewer"), ANONYMOUS)


@given(
    user=st.sampled_from(USERS),
    method=st.sampled_from(("GET", "POST", "DELETE")),
    path=st.sampled_from(
        (
            "/healthz",
            "/healthz/ping",
            "/version/",
            "/api",
            "/api/v1",
            "/apisx",
            "/metrics",
            "/api/v1/pods",
            "/api/v1/namespaces/x/pods/y/log",
            WHO,
            ACCESS,
        )
    ),
)
def test_what_a_review_says_is_what_is_then_allowed(user, method, path):
    target = parse(path, method, {})
    if target.is_resource:
        said = auth.resource_allowed(user, target.verb, target.group, target.resource, target.subresource)
    else:
        said = auth.path_allowed(user, target.verb, target.path)
    if said:
        auth.authorize(user, target)
    else:
        with pytest.raises(StatusError):
            auth.authorize(user, target)
