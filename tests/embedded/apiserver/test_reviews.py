"""Reviews: who calls, and what the caller may do; the answers agree with what the server then allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http import auth
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.validation import review_rules
from support.apiserver import VIEWER, served

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
USERS = (User("admin", ("system:masters",)), User("viewer"), ANONYMOUS)


@served
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


@served
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


@served
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


SELECTORS = [
    (
        "fieldSelector",
        {},
        "requirements: Required value: when {} is specified, requirements or rawSelector is required",
    ),
    (
        "fieldSelector",
        {"rawSelector": "a=b", "requirements": [{"key": "", "operator": "Exists", "values": ["v"]}]},
        'rawSelector: Invalid value: "a=b": may not specified at the same time as requirements',
        "requirements[0].key: Required value: must be specified",
        "requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or",
    ),
    (
        "labelSelector",
        {
            "requirements": [
                {"key": "k", "operator": "In"},
                {"key": "k", "operator": "NotIn", "values": ["-"]},
            ]
        },
        "requirements[0].values: Required value: must be specified when `operator` is 'In'",
        'requirements[1].values[0]: Invalid value: "-": a valid label must be an empty string or',
    ),
    (
        "labelSelector",
        {"requirements": [{"key": "A B", "operator": "Odd"}]},
        'requirements[0].key: Invalid value: "A B":',
    ),
]


@pytest.mark.parametrize(
    ("name", "selector", "expected"), [(one, two, rest) for one, two, *rest in SELECTORS]
)
def test_a_malformed_selector_of_an_access_review_is_refused(name, selector, expected):
    path = f"spec.resourceAttributes.{name}"
    found = list(review_rules.faults({"resourceAttributes": {name: selector}}))
    assert len(found) == len(expected)
    for cause, text in zip(found, expected, strict=True):
        assert f"{cause.field}: {cause.message}".startswith(f"{path}.{text.format(path)}")


READ = (
    ("fieldSelector", {"rawSelector": "a=b"}, ""),
    ("fieldSelector", {"rawSelector": "a"}, "ignored"),
    ("labelSelector", {"rawSelector": "a in (b"}, "ignored"),
    ("labelSelector", {"requirements": [{"key": "k", "operator": "Exists"}]}, ""),
    ("labelSelector", {"requirements": [{"key": "k", "operator": "Odd"}]}, "ignored"),
    (
        "fieldSelector",
        {
            "requirements": [
                {"key": "k", "operator": "In", "values": ["v"]},
                {"key": "k", "operator": "In", "values": ["v", "w"]},
            ]
        },
        "partially ignored",
    ),
)


@served
async def test_a_selector_that_cannot_be_read_is_ignored(api):
    for name, selector, how in READ:
        attributes = {"verb": "list", "resource": "pods", name: selector}
        review = {"spec": {"resourceAttributes": attributes}}
        answer = await api("POST", f"{ACCESS}?fieldValidation=Strict", review)
        assert answer.status == 201
        assert answer.body["spec"] == review["spec"]
        error = {"evaluationError": f"spec.resourceAttributes.{name} {how} due to parse error"} if how else {}
        assert answer.body["status"] == {"allowed": True} | error


@served
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
