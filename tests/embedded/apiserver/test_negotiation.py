import pytest

from corelane.embedded.apiserver.codec.wire import JSON, YAML, Representation
from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.status_errors import StatusError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, Representation()),
        ("", Representation()),
        ("*/*", Representation()),
        ("application/*, application/yaml", Representation(YAML)),
        ("application/yaml", Representation(YAML)),
        ("application/yaml;q=0.2, application/json;q=0.9", Representation(JSON)),
        ("text/html, application/json;q=0.5", Representation(JSON)),
        ("application/vnd.kubernetes.protobuf, application/json", Representation(JSON)),
        (TABLE, Representation(JSON, "Table")),
        (f"{TABLE},application/json", Representation(JSON, "Table")),
        (TABLE.replace("v1;", "v1beta1;") + ",application/json", Representation(JSON, "Table", "v1beta1")),
        (TABLE.replace("v1;", "v9;") + ",application/json", Representation(JSON)),
        (TABLE.replace("Table", "PartialObjectMetadata"), Representation(JSON, "PartialObjectMetadata")),
        ("application/json;q=high", Representation(JSON)),
    ],
)
def test_the_best_form_is_chosen(accept, expected):
    assert responses.representation(accept) == expected


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        TABLE.replace("v1;", "v9;"),
        TABLE.replace("Table", "Odd"),
        "application/vnd.kubernetes.protobuf",
    ],
)
def test_an_unavailable_form_is_406(accept):
    with pytest.raises(StatusError, match="only the following media types are accepted") as error:
        responses.representation(accept)
    assert error.value.code == 406
    assert responses.for_error(accept) == JSON
