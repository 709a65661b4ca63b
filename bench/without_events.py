"""`corelane` on a runtime without events of containers: the runtime's own are not listened to."""

import sys
from collections.abc import AsyncGenerator

from corelane.cli import main
from corelane.runtime.base import RuntimeVersion
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.values import Change, CRIError


async def no_changes(client: CRIClient, runtime: RuntimeVersion) -> AsyncGenerator[Change, None]:
    raise CRIError(f"{runtime.name}: no events, for the benchmark", "UNIMPLEMENTED")
    yield


CRIClient.changes = no_changes  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
