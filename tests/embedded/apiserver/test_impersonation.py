"""Requests as another user, by headers: `kubectl --as`."""

import pytest
from multidict import CIMultiDict

from corelane.embedded.apiserver.api_requests import parse
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User, groups_of
from corelane.embedded.apiserver.http.impersonation import acting_user
from corelane.embedded.apiserver.status_errors import StatusError
from support.apiserver import VIEWER, served

ADMIN = User("admin", ("system:masters",))
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PODS = "/api/v1/namespaces/default/pods"


def acting(*headers, user=ADMIN, path="/version"):
    return acting_user(CIMultiDict(headers), user, parse(path, "GET", {}))


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


def test_a_node_is_in_the_group_of_nodes():
    name = "system:node:n"
    assert acting(("Impersonate-User", name)) == User(name, ("system:nodes", "system:authenticated"))
    more = acting(("Impersonate-User", name), ("Impersonate-Uid", "7"))
    assert groups_of(more) == ("system:authenticated",)
    assert groups_of(acting(("Impersonate-User", "system:node:A B"))) == ("system:authenticated",)


def refusal(name, *more, path="/version"):
    with pytest.raises(StatusError) as error:
        acting(("Impersonate-User", name), *more, user=User("viewer"), path=path)
    assert error.value.code == 403
    return error.value.message


GROUP = ("Impersonate-Group", "g")


def test_only_administrators_impersonate():
    cannot = 'User "viewer" cannot impersonate'
    assert refusal("bob", GROUP) == f'forbidden: {cannot}-on:user-info:get path "/version"'
    where = 'resource "pods" in API group "" in the namespace "default"'
    assert refusal("bob", path=PODS) == f"pods is forbidden: {cannot}-on:user-info:list {where}"
    robot = "system:serviceaccount:ns:robot"
    assert refusal(robot) == f'forbidden: {cannot}-on:serviceaccount:get path "/version"'
    assert refusal("system:node:n") == f'forbidden: {cannot}-on:arbitrary-node:get path "/version"'
    where = 'resource "serviceaccounts" in API group "" in the namespace "ns"'
    assert refusal(robot, GROUP) == f'serviceaccounts "robot" is forbidden: {cannot} {where}'


def unnamed(*headers):
    with pytest.raises(StatusError) as error:
        acting(*headers)
    assert error.value.code == 400
    start, end = "requested &user.DefaultInfo{", "} without impersonating a user name"
    return error.value.message.removeprefix(start).removesuffix(end)


def test_groups_a_uid_and_extra_values_need_a_user():
    groups = (GROUP, ("Impersonate-Group", 'a"'))
    nil = "Extra:map[string][]string(nil)"
    assert unnamed(*groups) == f'Name:"", UID:"", Groups:[]string{{"g", "a\\""}}, {nil}'
    assert unnamed(("Impersonate-Uid", "7")) == f'Name:"", UID:"7", Groups:[]string(nil), {nil}'
    extra = 'Extra:map[string][]string{"a":[]string{"1", "2"}, "b":[]string{"3"}}'
    values = (("b", "3"), ("a", "1"), ("a", "2"))
    headers = (("Impersonate-Extra-" + key, value) for key, value in values)
    assert unnamed(*headers) == f'Name:"", UID:"", Groups:[]string(nil), {extra}'


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
