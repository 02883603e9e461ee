"""mqnamesrv loads settings and runs a name server; a failure to start is one line on stderr."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyromq.apps.launching import (
    announce,
    layers,
    one_line_failures,
    overrides,
    server_options,
    show,
    start_log,
    warn_if_open,
)
from pyromq.config.loading import Loaded, load
from pyromq.nameserver.settings import NameServerSettings

if TYPE_CHECKING:
    from pyromq.controller.settings import ControllerSettings

PROGRAM = "mqnamesrv"
LOG_FILE = "namesrv.log"

log = logging.getLogger("pyromq.apps.namesrv")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@server_options(LOG_FILE)
@click.option("-n", "--namesrvAddr", "namesrv_addr", help="Ignored; accepted for existing scripts.")
def command(
    config_file: Path | None,
    print_settings: bool,
    namesrv_addr: str | None,
    port: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a RocketMQ name server.

    Settings come from the file, the environment and the command line; the last one given wins.
    Variables that several programs share, such as NAMESRV_ADDR, are defaults: the file wins over them.
    `pyromq config namesrv` lists them all.
    """
    from_command = overrides(
        {"namesrvAddr": namesrv_addr, "listenPort": port, "logDir": log_dir}, assignments
    )
    with one_line_failures(PROGRAM):
        sources = layers([NameServerSettings], config_file, "configStorePath", from_command)
        loaded = load(NameServerSettings, sources)
        controller = None
        if loaded.settings.enable_controller_in_namesrv:
            from pyromq.apps.embedded_controller import load_both

            loaded, controller = load_both(sources)
    if print_settings:
        show(loaded.settings.describe(), loaded.notices)
        if controller is not None:
            show(controller.settings.describe(), controller.notices)
        return
    with one_line_failures(PROGRAM):
        run(loaded, controller)


def run(loaded: Loaded[NameServerSettings], with_controller: "Loaded[ControllerSettings] | None") -> None:
    """Run a name server, and perhaps a controller, until a signal stops it."""
    from pyromq.apps.serving import serve
    from pyromq.clock import SystemClock
    from pyromq.nameserver.nameserver import NameServer
    from pyromq.remoting.program import Startable, Together

    settings = loaded.settings
    start_log(
        settings, LOG_FILE, loaded.notices, settings.as_java_dict(), NameServerSettings().as_java_dict()
    )
    server = NameServer(settings, clock=SystemClock())
    served: Startable = server
    if with_controller is not None:
        from pyromq.controller.controller import Controller

        controller = Controller(with_controller.settings, clock=SystemClock())
        served = Together(lambda: controller, lambda: server)

    def started() -> None:
        warn_if_open(settings, [server.address])
        host, port = server.address
        # java: operators' scripts wait for exactly this line.
        announce(
            f"The Name Server boot success. serializeType={settings.serialize_type}, address {host}:{port}"
        )

    serve(served, started)


def main() -> None:
    command(prog_name=PROGRAM)
