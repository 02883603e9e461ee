"""mqcontroller loads settings and runs a controller; a failure to start is one line on stderr."""

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
from pyromq.controller.settings import ControllerSettings

PROGRAM = "mqcontroller"
LOG_FILE = "controller.log"

log = logging.getLogger("pyromq.apps.controller")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@server_options(LOG_FILE)
def command(
    config_file: Path | None,
    print_settings: bool,
    port: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a RocketMQ controller, which decides which broker of a group is the master.

    Settings come from the file, the environment and the command line; the last one given wins.
    Variables that several programs share, such as NAMESRV_ADDR, are defaults: the file wins over them.
    `pyromq config controller` lists them all.
    """
    from_command = overrides({"listenPort": port, "logDir": log_dir}, assignments)
    with one_line_failures(PROGRAM):
        loaded = load(
            ControllerSettings, layers([ControllerSettings], config_file, "configStorePath", from_command)
        )
    if print_settings:
        show(loaded.settings.describe(), loaded.notices)
        return
    with one_line_failures(PROGRAM):
        run(loaded)


def run(loaded: Loaded[ControllerSettings]) -> None:
    """Run a controller until a signal stops it."""
    from pyromq.apps.serving import serve
    from pyromq.clock import SystemClock
    from pyromq.controller.controller import Controller

    settings = loaded.settings
    start_log(
        settings,
        LOG_FILE,
        loaded.notices,
        settings.as_java_dict(),
        ControllerSettings().as_java_dict(),
        [settings.store_path],
    )
    controller = Controller(settings, clock=SystemClock())

    def started() -> None:
        warn_if_open(settings, [controller.address])
        # java: operators' scripts wait for this line, up to the comma.
        announce(
            f"The Controller Server boot success. serializeType={settings.serialize_type}, "
            f"address {controller.advertised_address}"
        )

    serve(controller, started)


def main() -> None:
    command(prog_name=PROGRAM)
