"""Requests as another user, by headers: `kubectl --as`."""

import pytest
from multidict import CIMultiDict

from corelane.apiserver.http.auth import ANONYMOUS, User, groups_of
from corelane.apiserver.http.impersonation import acting_user
from corelane.apiserver.status_errors import StatusError
from support.apiserver import VIEWER, served

ADMIN = User("admin", ("system:masters",))
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PODS = "/api/v1/namespaces/default/pods"


def acting(*headers, user=ADMIN):
    return acting_user(CIMultiDict(headers), user)


def test_without_a_header_the_caller_acts():
    assert acting() is ADMIN
    assert acting(("Impersonate-User", "")) is ADMIN


def test_a_user_is_in_the_group_of_authenticated_users():
    assert acting(("Impersonate-User", "bob")) == User("bob", ("system:authenticated",))
    masters = acting(("impersonate-user", "bob"), ("impersonate-group", "system:masters"))
    assert groups_of(masters) == ("system:masters", "system:authenticated")
    anonymous = acting(("Impersonate-User", "system:anonymous"))
    assert anonymous == ANONYMOUS
    without = acting(("Impersonate-User", "bob"), ("Impersonate-Group", "system:unauthenticated"))
    assert groups_of(without) == ("system:unauthenticated",)


def test_a_service_account_has_its_groups_unless_others_are_given():
    name = "system:serviceaccount:ns:robot"
    groups = ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert acting(("Impersonate-User", name)) == User(name, groups)
    assert groups_of(acting(("Impersonate-User", name), ("Impersonate-Group", "g"))) == (
        "g",
        "system:authenticated",
    )


def test_uid_and_extra_values_are_taken_over():
    user = acting(
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Extra-Acme.com%2Fproject", "one"),
        ("Impersonate-Extra-Acme.com%2Fproject", "two"),
    )
    assert (user.uid, user.extra) == ("42", (("acme.com/project", ("one", "two")),))


def refusal(name):
    with pytest.raises(StatusError) as error:
        acting(("Impersonate-User", name), user=User("viewer"))
    assert error.value.code == 403
    return error.value.message


def test_only_administrators_impersonate():
    assert refusal("bob") == (
        'users "bob" is forbidden: User "viewer" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    assert refusal("system:serviceaccount:ns:robot") == (
        'serviceaccounts "robot" is forbidden: User "viewer" cannot impersonate resource "serviceaccounts" '
        'in API group "" in the namespace "ns"'
    )


def test_groups_need_a_user():
    with pytest.raises(StatusError) as error:
        acting(("Impersonate-Group", "g"))
    assert error.value.code == 500
    assert error.value.message.endswith("without impersonating a user")


@served
async def test_a_request_is_carried_out_as_the_other_user(api):
    bob = {"Impersonate-User": "bob"}
    assert (await api("GET", PODS)).status == 200
    refused = await api("GET", PODS, headers=bob)
    assert refused.status == 403
    assert 'User "bob" cannot list resource "pods"' in refused.body["message"]
    who = (await api("POST", WHO, {}, headers=bob | {"Impersonate-Uid": "7"})).body["status"]["userInfo"]
    assert who == {"username": "bob", "uid": "7", "groups": ["system:authenticated"]}
    question = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    assert (await api("POST", ACCESS, question, headers=bob)).body["status"] == {"allowed": False}
    assert (await api("GET", PODS, headers=bob, token=VIEWER)).status == 403
    assert (await api("GET", "/version", headers=bob, token=None)).status == 403
