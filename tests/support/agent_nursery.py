"""Starts `corelane agent run` again and again without loading it each time: every agent is a fork of this.

A line of standard input is the arguments of one agent as JSON, a line of output its process ID. Loading takes
ten seconds under emulation, and more on a busy host. Agents answer the questions of NRI within deadlines that
are as much longer as emulation is slower.
"""

import gc
import json
import os
import signal
import sys
import traceback
from functools import partial

import h2

from corelane.agent import node_agent, nri_handlers
from corelane.app.agent import command
from corelane.cli import main
from corelane.runtime.nri import connection

SLOWER = 30
LOADED = (h2, command)
"""Loaded by their first users otherwise."""


def have_patience() -> None:
    for name in ("ANSWER_SECONDS", "DECISION_SECONDS", "POD_SECONDS"):
        setattr(nri_handlers, name, getattr(nri_handlers, name) * SLOWER)
    budget = connection.BUDGET_SECONDS * SLOWER
    node_agent.NRIConnection = partial(connection.NRIConnection, budget=budget)


def run(arguments: list[str]) -> None:
    """Be an agent, until this process ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code: object = 1
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    have_patience()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            run(json.loads(line))
        print(pid, flush=True)
