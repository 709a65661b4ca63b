"""Formats of names and values: what each accepts, and what is said of the rest."""

import pytest

from corelane.embedded.apiserver.schema.defaults_and_formats import FORMATS

ACCEPTED = {
    "dns-label": ["a", "a-b", "0", "a" * 63],
    "dns-subdomain": ["a", "a.b-c.d", "a" * 253],
    "generated-name": ["web-", "a.b"],
    "qualified-name": ["a", "A_b.c", "example.com/a", "a" * 63, "corelane.io/cpu-policy"],
    "label-value": ["", "A", "a_b.c-d", "a" * 63],
    "config-key": ["a", ".a", "a..b", "A_1"],
    "env-name": ["A", "any.thing but -"],
    "port-name": ["http", "a-1", "1a"],
    "port-or-name": [1, 65535, "http"],
    "count-or-percentage": [0, 7, "0%", "100%", "007%"],
    "reason": ["A", "Pod_Is:Fine,really"],
    "trimmed": ["", "a b"],
    "no-backsteps": ["a..b", "/a/b"],
    "local-path": ["a/b", ".a"],
}
REFUSED = {
    "dns-label": ["", "A", "-a", "a-", "a.b", "a" * 64, "a\n", "é"],
    "dns-subdomain": ["", "A", "a..b", ".a", "a" * 254, "a" * 100_000],
    "generated-name": ["-", "Ab-"],
    "qualified-name": ["", "a b", "/a", "a/", "a/b/c", "A/a", "a" * 64],
    "label-value": ["a b", "-a", "a-", "a" * 64],
    "config-key": ["", ".", "..", "..a", "a b", "a" * 254],
    "env-name": ["", "a=b", "é", "a\n"],
    "port-name": ["", "1", "a--b", "-a", "a-", "A", "a" * 16],
    "port-or-name": [0, 65536, "1"],
    "count-or-percentage": [-1, "101%", "-1%", "1.5%", "5", "9" * 400 + "%"],
    "reason": ["", "1a", "a:", "a b"],
    "trimmed": [" a", "a\n"],
    "no-backsteps": ["..", "a/../b"],
    "local-path": ["/a", "..a", "../a", "a/../b"],
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_accepts_its_values_and_says_what_is_wrong_with_others(name):
    assert [value for value in ACCEPTED[name] if FORMATS[name](value)] == []
    for value in REFUSED[name]:
        assert FORMATS[name](value), value
        assert all("must" in fault for fault in FORMATS[name](value))
