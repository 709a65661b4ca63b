"""What `corelane up` does not load: memory that every start would pay for."""

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, sys
import corelane.cli
from corelane.embedded.up import command
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=180
    )
    return set(json.loads(run.stdout))


@pytest.mark.parametrize(
    "name",
    [
        "cryptography",  # 10 MB, for certificates that are made once
        "rich",  # 3 MB with pygments, for tables and colours of other commands
        "pygments",
        "h2",
        "google.protobuf",
        "numpy.ma",  # 1 MB
        "importlib.metadata",  # 1 MB with zipfile
        "corelane.cli.limits",  # 2 MB with the other commands
        "corelane.limits",
        "corelane.view",
        "corelane.runtime.cri",
        "corelane.runtime.nri",
    ],
)
def test_up_does_not_load(loaded: set[str], name: str) -> None:
    assert "corelane.embedded.up.cluster" in loaded
    assert name not in loaded


def test_up_reads_no_certificate_authorities_of_the_system() -> None:
    probe = "from corelane.embedded.up import command; from aiohttp import connector as c; import os; "
    probe += "print(c._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'], os.environ.get('SSL_CERT_FILE'))"
    for variable, value in ({}, "None"), ({"SSL_CERT_FILE": "/some/file"}, "/some/file"):
        environment = {name: text for name, text in os.environ.items() if name != "SSL_CERT_FILE"} | variable
        command = [sys.executable, "-c", probe]
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=180, env=environment
        )
        assert run.stdout.split() == ["0", value]
