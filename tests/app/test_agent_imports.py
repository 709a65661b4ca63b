"""What `corelane agent run`, which runs as root, loads: nothing of the scheduler, `up` or the laboratory."""

import json
import subprocess
import sys

PROBE = """
import json, sys
from corelane.app.agent import command
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(json.dumps({name: file for name, file in files.items() if file and name.startswith("corelane")}))
"""
MOST_LINES = 35_000
"""Lines of corelane."""


def test_the_agent_loads_nothing_of_scheduler_embedded_server_or_limits() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=180
    )
    files = json.loads(run.stdout)
    assert "corelane.agent.node_agent" in files
    rooms = {name.split(".")[1] for name in files if "." in name}
    assert not rooms & {"scheduler", "embedded", "limits", "view", "cli", "fleet"}
    lines = 0
    for path in set(files.values()):
        with open(path) as file:  # noqa: PTH123
            lines += len(file.readlines())
    assert lines <= MOST_LINES
