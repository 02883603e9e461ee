"""One broker of `pyromq standalone --brokers` or `--replicas`, in its own process.

`python -m pyromq.apps.replica ARGUMENTS`, which are JSON. It writes a line with its address when it is
up, and ends with the process that started it. Everybody on the machine can read its arguments: it reads the
secrets of a secure cluster from their file.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from pyromq.apps.logging_setup import set_up_audit_log, set_up_logging
from pyromq.apps.secure_files import BROKER, SecureFiles
from pyromq.apps.serving import serve
from pyromq.broker.broker import Broker
from pyromq.standalone import StandaloneSettings

READY: Final = "ready"
_LOOK_S: Final = 1.0


class _Orphaned(Broker):
    """Stops when its parent is gone."""

    async def run_until_stopped(self) -> None:
        parent = os.getppid()
        running = asyncio.create_task(super().run_until_stopped())
        while not running.done() and os.getppid() == parent:
            await asyncio.wait([running], timeout=_LOOK_S)
        if not running.done():
            await self.stop()
        await running


def main(arguments: str) -> None:
    chosen, namesrv, number, controller, is_secure = json.loads(arguments)
    store = Path(chosen["store"])
    files = SecureFiles.of(store)
    secure = {"servers": files.settings(), "broker": dict(BROKER)} if is_secure else {}
    settings = StandaloneSettings(**chosen | {"store": store} | secure)
    set_up_logging("INFO", None, 0, 0)
    if is_secure:
        set_up_audit_log(files.audit_log)
    port = settings.broker_port_of(number)
    broker = _Orphaned(settings.broker_configuration(namesrv, number, port, controller))

    def ready() -> None:
        sys.stdout.write(f"{READY} {broker.advertised_address}\n")
        sys.stdout.flush()

    serve(broker, ready)


if __name__ == "__main__":
    main(sys.argv[1])
