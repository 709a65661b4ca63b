"""Whatever is sent, the answer is one that Kubernetes could have given, and nothing is lost."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.apiserver import CONFIG_MAPS, NAMESPACES, PODS, config_map, pod, serving

NAMES = st.sampled_from(["c", "p", "n", "default", "none", "Bad_Name", "", "%00", "..", "é"])
COLLECTIONS = st.sampled_from(
    [
        CONFIG_MAPS,
        PODS,
        NAMESPACES,
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
        "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        "/api/v1/namespaces/default/bindings",
    ]
)
PARTS = st.sampled_from(["", "/status", "/binding", "/eviction", "/log", "/finalize", "/exec", "/nosuch"])
PARAMETERS = st.sampled_from(
    [
        "",
        "limit=1",
        "limit=x",
        "continue=abc",
        "dryRun=All",
        "fieldSelector=metadata.name=c",
        "labelSelector=a in (b",
        "resourceVersion=1",
        "resourceVersion=x&resourceVersionMatch=Exact",
        "fieldValidation=Strict",
        "gracePeriodSeconds=-1",
        "propagationPolicy=Orphan",
        "includeObject=None",
        "watch=1&timeoutSeconds=1&resourceVersion=x",
    ]
)
TYPES = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
    ]
)
ACCEPTS = st.sampled_from(
    ["application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "text/html"]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["metadata", "spec", "status", "name", "op", "path", "x"]), inner),
    ),
    max_leaves=8,
)
KEYS = ["metadata", "spec", "status", "data", "target", "zones", "value", "kind", "apiVersion"]
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(KEYS), JSON).map(lambda value: json.dumps(value).encode()),
    st.tuples(st.sampled_from([config_map(), pod()]), st.sampled_from(KEYS), JSON).map(
        lambda parts: json.dumps(parts[0] | {parts[1]: parts[2]}).encode()
    ),
    st.lists(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "remove", "test"]), "path": st.just("/data/x")}),
        max_size=2,
    ).map(lambda value: json.dumps(value).encode()),
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    COLLECTIONS,
    NAMES,
    PARTS,
    PARAMETERS,
    TYPES,
    ACCEPTS,
    BODIES,
)
FORESEEN_500 = ("is not an unsigned integer of 64 bits", "resourceVersion should not be set", "target.")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS, min_size=5, max_size=25))
def test_no_request_gets_an_answer_that_was_not_meant(requests):
    async def run():
        async with serving() as api:
            await api.made(CONFIG_MAPS, config_map())
            await api.made(PODS, pod())
            for method, collection, name, part, parameters, media, accept, body in requests:
                path = f"{collection}/{name}{part}" if name else collection
                headers = {"Content-Type": media, "Accept": accept}
                answer = await api(method, f"{path}?{parameters}", data=body, headers=headers)
                text = json.dumps(answer.body)
                assert answer.status < 500 or answer.status == 501 or any(t in text for t in FORESEEN_500), (
                    method, path, parameters, media, body, text,
                )  # fmt: skip
            assert (await api.get("/readyz")).body == "ok"
            for collection in (CONFIG_MAPS, PODS, NAMESPACES, "/api/v1/nodes"):
                assert (await api.get(collection)).status == 200

    asyncio.run(run())
