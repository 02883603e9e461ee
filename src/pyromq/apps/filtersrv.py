"""mqfiltersrv loads settings and runs a filter server; a failure to start is one line on stderr."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from pyromq.apps.launching import (
    announce,
    one_line_failures,
    overrides,
    server_options,
    show,
    start_log,
    warn_if_open,
)
from pyromq.broker.settings import BrokerSettings
from pyromq.config.loading import Layer, Loaded, environment_layers, file_layer, load
from pyromq.filterserver.confinement import end_with_parent
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.store.settings import StoreSettings

PROGRAM = "mqfiltersrv"
LOG_FILE = "filtersrv.log"

log = logging.getLogger("pyromq.apps.filtersrv")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@server_options(LOG_FILE)
@click.option("--parent", type=int, hidden=True, help="End with the process of this number.")
@click.option("--broker", help="The broker's address; the same as -o connectWhichBroker=HOST:PORT.")
def command(
    config_file: Path | None,
    print_settings: bool,
    parent: int | None,
    broker: str | None,
    port: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a filter server, which runs filters of consumers on whole messages, next to a broker.

    Settings come from the file, the environment and the command line; the last one given wins.
    The file may be the broker's: keys that only the broker has are passed over.
    `pyromq config filtersrv` lists them all.
    """
    named = {"connectWhichBroker": broker, "filterServerPort": port, "logDir": log_dir}
    with one_line_failures(PROGRAM):
        loaded = load_filter_server(config_file, overrides(named, assignments), os.environ)
    if print_settings:
        show(loaded.settings.describe(), loaded.notices)
        return
    with one_line_failures(PROGRAM):
        if parent is not None and sys.platform == "linux":
            end_with_parent(parent)
        run(loaded)


def load_filter_server(
    file: Path | None, from_command: Mapping[str, str], environ: Mapping[str, str]
) -> Loaded[FilterServerSettings]:
    """Raises ConfigError for settings that cannot be used."""
    layers = [_own(file_layer(file))] if file is not None else []
    layers += environment_layers(FilterServerSettings, environ)
    return load(FilterServerSettings, [*layers, Layer("the command line", from_command)])


def _own(layer: Layer) -> Layer:
    """The values of a file that are meant for a filter server.

    java: it reads the broker's file, where listenPort is the port of the broker.
    """
    values = {key: text for key, text in layer.values.items() if not _is_only_the_brokers(key)}
    port = layer.values.get("listenPort")
    if port is not None:
        values.setdefault("connectWhichBroker", f"127.0.0.1:{port.strip()}")
    return replace(layer, values=values)


def _is_only_the_brokers(key: str) -> bool:
    return FilterServerSettings.find(key) is None and (
        BrokerSettings.find(key) is not None or StoreSettings.find(key) is not None
    )


def run(loaded: Loaded[FilterServerSettings]) -> None:
    """Run a filter server until a signal stops it."""
    from pyromq.apps.serving import serve
    from pyromq.clock import SystemClock
    from pyromq.filterserver.filter_server import FilterServer

    settings = loaded.settings
    start_log(
        settings, LOG_FILE, loaded.notices, settings.as_java_dict(), FilterServerSettings().as_java_dict()
    )
    server = FilterServer(settings, clock=SystemClock())

    def started() -> None:
        warn_if_open(settings, [server.address])
        # java: operators' scripts wait for this line.
        announce(f"The Filter Server boot success, {server.advertised_address}")

    serve(server, started)


def main() -> None:
    command(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
