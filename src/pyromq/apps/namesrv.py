"""mqnamesrv: settings in, a running name server out; whatever prevents it is one line on stderr."""

import errno
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from pyromq.config.loading import Layer, Loaded, environment_layers, file_layer, load
from pyromq.errors import ConfigError, PyroError
from pyromq.nameserver.settings import NameServerSettings

log = logging.getLogger("pyromq.apps.namesrv")


def load_settings(
    file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> Loaded[NameServerSettings]:
    layers: list[Layer] = []
    if file is not None:
        layers.append(file_layer(file))
        # java: changes made over the network go back to the file the server was started with.
        layers.append(Layer("-c", {"configStorePath": str(file.absolute())}))
    layers += environment_layers(NameServerSettings, environ)
    layers.append(Layer("the command line", overrides))
    return load(NameServerSettings, layers)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-c",
    "--configFile",
    "config_file",
    type=click.Path(path_type=Path),
    help="Read settings from this properties file.",
)
@click.option(
    "-p", "--printConfigItem", "print_settings", is_flag=True, help="Print all settings and do not start."
)
@click.option("-n", "--namesrvAddr", "namesrv_addr", help="Accepted for the sake of existing scripts.")
@click.option("--port", help="The TCP port to listen on; the same as -o listenPort=PORT.")
@click.option("--log-dir", help="The directory of namesrv.log; the same as -o logDir=DIR.")
@click.option(
    "-o", "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one setting; repeatable."
)
def command(
    config_file: Path | None,
    print_settings: bool,
    namesrv_addr: str | None,
    port: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a RocketMQ name server.

    A setting comes from its default, the file, the environment or the command line; the last that has one
    wins. `pyromq config namesrv` lists them all.
    """
    named = {"namesrvAddr": namesrv_addr, "listenPort": port, "logDir": log_dir}
    overrides = {key: value for key, value in named.items() if value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise click.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint="-o")
        overrides[key.strip()] = value
    try:
        loaded = load_settings(config_file, os.environ, overrides)
    except ConfigError as error:
        fail(_with_notes(error))
    if print_settings:
        for notice in loaded.notices:
            click.echo(f"warning: {notice}", err=True)
        click.echo(loaded.settings.describe(), nl=False)
        return
    try:
        run(loaded)
    except OSError as error:
        fail(_why_not_started(error, loaded.settings))
    except PyroError as error:
        fail(_with_notes(error))


def run(loaded: Loaded[NameServerSettings]) -> None:
    """Run a name server until a signal ends it."""
    from pyromq.apps.logging_setup import set_up_logging
    from pyromq.apps.serving import serve
    from pyromq.clock import SystemClock
    from pyromq.nameserver.nameserver import NameServer

    settings = loaded.settings
    log_file = settings.log_dir / "namesrv.log" if settings.log_dir is not None else None
    set_up_logging(settings.log_level, log_file, settings.log_max_bytes, settings.log_backups)
    for notice in loaded.notices:
        log.warning("%s", notice)
    defaults = NameServerSettings().as_java_dict()
    changed = {key: value for key, value in settings.as_java_dict().items() if defaults.get(key) != value}
    log.info("starting %s", " ".join(f"{key}={value}" for key, value in sorted(changed.items())))
    server = NameServer(settings, clock=SystemClock())

    def announce() -> None:
        if settings.metrics_port is not None:
            log.info("metrics and health are served address=%s:%d", *server.metrics_address)
        host, port = server.address
        # java: operators' scripts wait for this very line.
        line = f"The Name Server boot success. serializeType={settings.serialize_type}, address {host}:{port}"
        click.echo(line)
        log.info("%s", line)

    serve(server, announce)


def fail(sentence: str) -> NoReturn:
    click.echo(f"mqnamesrv: {sentence}", err=True)
    sys.exit(1)


def _with_notes(error: PyroError) -> str:
    return " ".join([str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))])


def _why_not_started(error: OSError, settings: NameServerSettings) -> str:
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"could not use {error.filename}: {reason}"
    addresses = f"{settings.bind_address}:{settings.listen_port}"
    if settings.metrics_port is not None:
        addresses += f" and {settings.metrics_address}:{settings.metrics_port}"
    advice = "; choose another port with --port" if error.errno == errno.EADDRINUSE else ""
    return f"could not listen on {addresses}: {reason}{advice}"


def main() -> None:
    command(prog_name="mqnamesrv")
