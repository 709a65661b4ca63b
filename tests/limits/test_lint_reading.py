"""Texts to located values: YAML and JSON as people and Helm write them, and broken ones."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.lint import linter, located, yaml_documents
from corelane.limits.lint.yaml_documents import YAMLDocument, YAMLFault
from support.manifests import report


def one(content: str) -> located.Located:
    (found,) = yaml_documents.read(content)
    assert isinstance(found, YAMLDocument), found
    return found.root


def fault(content: str) -> YAMLFault:
    (found,) = [part for part in yaml_documents.read(content) if isinstance(part, YAMLFault)]
    return found


def where(node: located.Located, *path: str) -> tuple[int, int]:
    place = located.place(node, *path)
    return place.line, place.column


def test_values_know_the_line_and_column_of_their_keys():
    root = one("a:\n  b: 1\n  'c': [x,\n    y]\n")
    assert where(root, "a") == (1, 1)
    assert where(root, "a", "b") == (2, 3)
    assert where(root, "a", "c") == (3, 3)
    assert located.items(root, "a", "c")[1].place.line == 4


def test_what_is_missing_stands_where_the_nearest_thing_around_it_does():
    assert where(one("\na:\n  b: {}\n"), "a", "b", "c", "d") == (3, 3)


def test_documents_keep_the_lines_of_their_file_and_their_template():
    content = "# Source: c/a.yaml\nx: 1\n---\n# Source: c/b.yaml\n\ny: 2\n---\n# nothing\n---\nz: 3\n"
    first, second, third = yaml_documents.read(content)
    assert [text.source for text in (first, second, third)] == ["c/a.yaml", "c/b.yaml", ""]
    assert where(second.root, "y") == (6, 1)
    assert where(third.root, "z") == (10, 1)


def test_directives_byte_order_marks_and_windows_line_ends_do_no_harm():
    root = one("\ufeff%YAML 1.1\r\n---\r\na:\r\n  b: c\r\n")
    assert located.text(root, "a", "b") == "c"
    assert where(root, "a", "b") == (4, 3)


def test_a_broken_document_leaves_the_others_readable():
    first, broken, last = yaml_documents.read("a: 1\n---\nb: [1\n---\nc: 3\n")
    assert located.text(first.root, "a") == "1"
    assert isinstance(broken, YAMLFault)
    assert broken.line in (3, 4)
    assert where(last.root, "c") == (5, 1)


def test_aliases_and_merge_keys_are_followed():
    root = one("base: &b {x: 1, y: 2}\nuse: *b\nmore:\n  <<: *b\n  y: 3\n")
    assert located.text(root, "use", "x") == "1"
    assert located.text(root, "more", "x") == "1"
    assert located.text(root, "more", "y") == "3"


def test_a_million_laughs_are_a_fault():
    lines = [
        "a: &a [x, x]",
        *(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]" for n in range(20)),
    ]
    assert "aliases expand" in fault("\n".join(lines)).message


@pytest.mark.parametrize("null", ["", "~", "null", "Null", "NULL"])
def test_null_is_as_good_as_nothing_unless_it_is_quoted(null):
    root = one(f"a: {null}\nb: '{null}'\n")
    assert located.at(root, "a") is None
    assert located.at(root, "b") is not None
    assert [key for key, _ in located.pairs(root)] == ["b"]


@pytest.mark.parametrize(
    ("content", "line", "column", "words"),
    [
        ("a: 1\nb: [1, 2\n", 3, 1, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, 1, "a tab where YAML requires spaces"),
        ("é: 1\r\n\tb: 2\r\n", 2, 1, "a tab"),
        ("a: 'x\n", 2, 1, "not YAML"),
        ("a: *nobody\n", 1, 4, "*nobody"),
        ("a: 1\na: 2\n", 2, 1, "is twice"),
        ("? [a]\n: b\n", 1, 3, "a key must be"),
        ("a: \x00\n", 1, 4, "not YAML"),
        ("[" * 300 + "]" * 300, 1, 201, "deeper than 200"),
    ],
)
def test_what_is_no_yaml_is_said_with_its_place(content, line, column, words):
    found = fault(content)
    assert (found.line, found.column) == (line, column)
    assert words in found.message


@pytest.mark.parametrize("depth", [201, 1_000, 1_001, 100_000])
def test_nesting_beyond_all_reason_is_a_fault(depth):
    """libyaml may refuse it at its own, later limit."""
    found = fault("[" * depth)
    assert (found.line, found.message) == (1, "nested deeper than 200 levels")


@pytest.mark.parametrize(
    "content",
    [
        "a: 1\nimage: {{ .Values.image }}\n",
        "a: 1\n{{- if .Values.on }}\nb: 2\n{{- end }}\n",
        'labels:\n  {{- include "chart.labels" . | nindent 4 }}\n',
    ],
)
def test_an_unrendered_template_is_said_to_be_one_at_its_first_brace(content):
    found = fault(content)
    assert found.line == 2
    assert "helm template" in found.message


def test_a_file_of_several_unrendered_documents_is_one_line():
    document = "a: 1\nb: {{ .Name }}\n"
    found = report("---\n".join([document, "x: [\n", document, document])).faults
    assert [(one.line, one.message.endswith("(3 documents)")) for one in found] == [(5, False), (2, True)]
    (single,) = report(document).faults
    assert "documents" not in single.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: 1\nsteps: {{args.canary}}\n", "Argo"),
        ("a: 1\ncount: {{ inputs.parameters.count }}\n", "Argo"),
        ("a: 1\ncount: {{workflow.parameters.n}}\n", "Argo"),
        ("a: 1\ncount: {{=asInt(inputs.parameters.n)}}\n", "Argo"),
        ("a: 1\nnamespace: {{ .Runtime.Namespace }}\n", "not one of Helm"),
        ("a: 1\n{{- if .RuntimeClass }}\nb: 2\n{{- end }}\n", "not one of Helm"),
        ("a: 1\nversion: {{ .TagName }}\n", "not one of Helm"),
        ("a: 1\nhost: {{ ansible_host }}\n", "not one of Helm"),
        ("a: 1\n{{ .ReleaseNotes }}\n", "not one of Helm"),
        ("a: 1\nx: {{ .App.Values }}\n", "not one of Helm"),
    ],
)
def test_a_template_of_another_program_is_not_called_helms(content, words):
    found = fault(content)
    assert found.line == 2
    assert words in found.message
    assert "helm template" not in found.message


def test_a_document_of_control_words_alone_is_helms_where_its_file_is():
    first, second = yaml_documents.read("{{- if .Values.on }}\na: 1\n---\n{{- end }}\nb: 1\n")
    assert "helm template" in first.message
    assert "helm template" in second.message


def test_braces_in_quotes_are_no_template_and_not_to_blame():
    found = fault("a: '{{ .Title }}'\n  b: 1\n")
    assert found.line == 2
    assert "helm" not in found.message


def test_json_objects_one_after_another_are_documents_at_their_places():
    text = '{"a":\n 1}\n{"b": 2} {"c":\t3}\n'
    roots = [part.root for part in yaml_documents.read(text)]
    assert [where(root, key) for root, key in zip(roots, "abc", strict=True)] == [(1, 2), (3, 2), (3, 11)]
    assert fault('{"a": 1}\nb').message.startswith("not YAML")


def test_json_keeps_its_places_despite_tabs_and_surrogates():
    root = one('{\n\t"a": "\\ud83d\\ude00",\n\t"b": {"c": "\\\\ud83d"}\n}')
    assert where(root, "b", "c") == (3, 8)
    assert located.text(root, "b", "c") == "\\ud83d"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=40), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(
    tree=st.dictionaries(st.text(min_size=1, max_size=40), _JSON, min_size=1, max_size=4),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_every_json_object_is_read(tree, indent):
    root = one(json.dumps(tree, indent=indent))
    assert isinstance(root, located.LocatedMapping)
    assert len(root.members) == len(tree)


@given(content=st.text(alphabet="ab:-{}[]&*?!|>'\"# \n\t%<,0\\u\ud83d".replace("\ud83d", "é"), max_size=60))
def test_no_text_is_more_than_a_fault(content):
    for part in yaml_documents.read(content):
        assert isinstance(part, YAMLDocument | YAMLFault)
        if isinstance(part, YAMLFault):
            assert part.line >= 1
            assert part.column >= 1
            assert "\n" not in part.message


DEFINITION = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n"


def test_the_schema_of_a_custom_resource_definition_is_not_parsed():
    (found,) = yaml_documents.read(f"# Source: a/crds/x.yaml\n{DEFINITION}spec: {{not: [closed\n")
    assert isinstance(found, YAMLDocument)
    assert located.text(found.root, "kind") == "CustomResourceDefinition"
    assert found.source == "a/crds/x.yaml"


@pytest.mark.parametrize(
    "content",
    [
        "kind: CustomResourceDefinition\nspec: [\n",
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: |\n    "
        + DEFINITION.replace("\n", "\n    ")
        + "\n  y: [\n",
        "apiVersion: apiextensions.k8s.io/v1\nkind: Other\nspec: [\n",
    ],
    ids=["without an apiVersion", "in a text", "another kind"],
)
def test_what_only_looks_like_a_definition_is_parsed(content):
    assert "not YAML" in fault(content).message


def test_what_follows_a_definition_is_read():
    for end in ("---\n", "...\n---\n"):
        documents = yaml_documents.read(f"{DEFINITION}{end}apiVersion: v1\nkind: Pod\n")
        kinds = [located.text(each.root, "kind") for each in documents if isinstance(each, YAMLDocument)]
        assert kinds == ["CustomResourceDefinition", "Pod"]
    assert "not YAML" in fault(f"{DEFINITION}...\nkind: Pod\n").message


@pytest.mark.parametrize(
    "levels",
    [
        "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)),
        "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 900)}]}}\n" for n in range(1, 4)),
    ],
)
def test_aliases_that_expand_beyond_any_manifest_are_a_fault_where_they_do(levels):
    (fault,) = yaml_documents.read("a0: &a0 {b: x, c: x}\n" + levels)
    assert "aliases expand to more than 100,000 values" in fault.message
    assert fault.line > 2


def test_comments_that_ignore_are_about_the_next_line_that_is_none():
    own, last = "kind: Pod # corelane: ignore c x", "# corelane: ignore d x"
    content = f"# corelane: ignore a x\n\n# corelane: ignore b x\n{own}\n{last}\n"
    assert [(one.rules, one.line) for one in linter.read_ignores(content, "abcd")] == [
        (("a",), 4),
        (("b",), 4),
        (("c",), 4),
        (("d",), 5),
    ]
