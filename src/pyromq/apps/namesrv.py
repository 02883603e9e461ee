"""mqnamesrv loads settings and runs a name server; a failure to start is one line on stderr."""

import logging
from pathlib import Path

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
    `pyromq config namesrv` lists them all.
    """
    from_command = overrides(
        {"namesrvAddr": namesrv_addr, "listenPort": port, "logDir": log_dir}, assignments
    )
    with one_line_failures(PROGRAM):
        loaded = load(
            NameServerSettings, layers([NameServerSettings], config_file, "configStorePath", from_command)
        )
    if print_settings:
        show(loaded.settings.describe(), loaded.notices)
        return
    with one_line_failures(PROGRAM):
        run(loaded)


def run(loaded: Loaded[NameServerSettings]) -> None:
    """Run a name server until a signal stops it."""
    from pyromq.apps.serving import serve
    from pyromq.clock import SystemClock
    from pyromq.nameserver.nameserver import NameServer

    settings = loaded.settings
    start_log(
        settings, LOG_FILE, loaded.notices, settings.as_java_dict(), NameServerSettings().as_java_dict()
    )
    server = NameServer(settings, clock=SystemClock())

    def started() -> None:
        warn_if_open(settings, [server.address])
        if settings.metrics_port is not None:
            log.info("serving metrics and health address=%s:%d", *server.metrics_address)
        host, port = server.address
        # java: operators' scripts wait for exactly this line.
        announce(
            f"The Name Server boot success. serializeType={settings.serialize_type}, address {host}:{port}"
        )

    serve(server, started)


def main() -> None:
    command(prog_name=PROGRAM)
