"""The embedded API server as a program: `server_process.py DIRECTORY PORT`; what it stores outlives it."""

import asyncio
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.up import tls

TOKEN = "admintoken"


async def serve(directory: Path, port: int) -> None:
    context, _ = tls.server_context(directory, datetime.now(UTC))
    server = APIServer(
        data_dir=directory, tokens={TOKEN: User("admin", ("system:masters",))}, tls=context, port=port
    )
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
