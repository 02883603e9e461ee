"""A cluster and its console, as one program."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.apps.launching import fail
from pyromq.apps.secure_files import ADMINISTRATOR, SecureFiles
from pyromq.remoting.program import Together

if TYPE_CHECKING:
    from pyromq.apps.broker_processes import BrokerProcesses
    from pyromq.console.server import Console
    from pyromq.standalone import Standalone


class ConsoleBeside(Together):
    """Users and the audit log are in the cluster's directory. With `secure` the console logs in, too."""

    def __init__(
        self, cluster: "Standalone | BrokerProcesses", port: int, secure: SecureFiles | None
    ) -> None:
        def console() -> "Console":
            self._console = _console(cluster, port, secure)
            return self._console

        super().__init__(lambda: cluster, console)

    def announce(self) -> None:
        from pyromq.apps.console import say_where

        say_where(self._console.url, self._console.first_password)


def _console(cluster: "Standalone | BrokerProcesses", port: int, secure: SecureFiles | None) -> "Console":
    try:
        from pyromq.console.server import Console
    except ModuleNotFoundError as missing:
        fail("pyromq standalone", f"{missing}: pip install 'pyromq[console]'")
    from pyromq.console.settings import ConsoleSettings

    chosen: dict[str, Any] = {
        "namesrv_addr": cluster.namesrv,
        "listen_port": port,
        "home": Path(cluster.settings.store) / "console",
    }
    if secure is not None:
        chosen |= {
            "access_key": ADMINISTRATOR,
            "secret_key": secure.administrator_password(),
            "cluster_trust_path": secure.certificate,
        }
    return Console(ConsoleSettings(**chosen))
