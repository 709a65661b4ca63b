"""Reviews: who calls, and what the caller may do; the answers agree with what the server then allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http import auth
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.status_errors import StatusError
from support.apiserver import VIEWER

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
USERS = (User("admin", ("system:masters",)), User("viewer"), ANONYMOUS)


async def test_callers_learn_who_they_are(api):
    mine = await api("POST", WHO, {})
    assert mine.status == 201
    assert mine.body["status"]["userInfo"] == {
        "username": "admin",
        "groups": ["system:masters", "system:authenticated"],
    }
    theirs = await api("POST", WHO, {}, token=VIEWER)
    assert theirs.body["status"]["userInfo"]["groups"] == ["system:authenticated"]
    assert (await api("POST", WHO, {}, token=None)).status == 403


async def test_administrators_learn_to_which_user_a_token_belongs(api):
    known = (await api("POST", TOKENS, {"spec": {"token": VIEWER}})).body
    assert known["status"] == {
        "authenticated": True,
        "user": {"username": "viewer", "groups": ["system:authenticated"]},
        "audiences": ["https://kubernetes.default.svc"],
    }
    refused = {"user": {}, "error": "invalid bearer token"}
    for spec in ({"token": "wrong"}, {"token": f"{VIEWER} x"}, {"token": VIEWER, "audiences": ["other"]}):
        answer = await api("POST", TOKENS, {"spec": spec})
        assert (answer.status, answer.body["status"]) == (201, refused)
    assert (await api("POST", TOKENS, {"spec": {}})).status == 400
    assert (await api("POST", TOKENS, {"spec": {"token": VIEWER}}, token=VIEWER)).status == 403


async def test_callers_learn_what_they_may_do(api):
    pods = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
    assert (await api("POST", ACCESS, pods)).body["status"] == {"allowed": True}
    assert (await api("POST", ACCESS, pods, token=VIEWER)).body["status"] == {"allowed": False}
    health = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}}
    assert (await api("POST", ACCESS, health, token=VIEWER)).body["status"] == {"allowed": True}
    for spec in ({}, pods["spec"] | health["spec"]):
        assert (await api("POST", ACCESS, {"spec": spec})).status == 422
    rules = (await api("POST", RULES, {"spec": {"namespace": "default"}})).body["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules["resourceRules"]
    assert (await api("POST", RULES, {})).body["message"] == "no namespace on request"


async def test_reviews_are_created_only(api):
    for path in (WHO, TOKENS, ACCESS, RULES):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert (await api(method, path)).status == 405
        assert (await api.get(f"{path}/x")).status == 404


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
