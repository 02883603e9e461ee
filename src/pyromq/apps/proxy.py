"""mqproxy loads settings and runs a gRPC front, in LOCAL mode with a broker in the same process."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyromq.apps.launching import (
    announce,
    assignments_option,
    fail,
    one_line_failures,
    overrides,
    show,
    start_log,
    warn_if_open,
)
from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, load_broker
from pyromq.cli.version import version_option
from pyromq.config.loading import Layer, Loaded, environment_layers, file_layer, load
from pyromq.errors import ConfigError
from pyromq.proxy.settings import ProxySettings
from pyromq.remoting.addresses import format_address
from pyromq.remoting.program import Together
from pyromq.store.settings import StoreSettings

if TYPE_CHECKING:
    from pyromq.proxy.proxy import Proxy

PROGRAM = "mqproxy"
LOG_FILE = "proxy.log"

log = logging.getLogger("pyromq.apps.proxy")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-n", "--namesrvAddr", "namesrv_addr", help="The name servers, as 'host:port;host:port'.")
@click.option(
    "-pc",
    "--proxyConfigPath",
    "config_file",
    type=click.Path(path_type=Path),
    help="Read settings from this file, rmq-proxy.json.",
)
@click.option(
    "-pm", "--proxyMode", "mode", help="cluster serves any brokers; local starts one in the same process."
)
@click.option("-bc", "--brokerConfigPath", "broker_file", help="Properties file of the broker in local mode.")
@click.option(
    "-p", "--printConfigItem", "print_settings", is_flag=True, help="Print all settings and do not start."
)
@click.option("--port", help="The TCP port to listen on; the same as -o grpcServerPort=PORT.")
@click.option("--log-dir", help=f"The directory of {LOG_FILE}; the same as -o logDir=DIR.")
@assignments_option
def command(
    namesrv_addr: str | None,
    config_file: Path | None,
    mode: str | None,
    broker_file: str | None,
    print_settings: bool,
    port: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run the gRPC proxy for RocketMQ 5 clients, for any cluster or with a built-in broker.

    Settings come from the file, the environment and the command line; the last one given wins.
    Variables that several programs share, such as NAMESRV_ADDR, are defaults: the file wins over them.
    `pyromq config proxy` lists them all.
    """
    named = {
        "namesrvAddr": namesrv_addr,
        "proxyMode": mode,
        "brokerConfigPath": broker_file,
        "grpcServerPort": port,
        "logDir": log_dir,
    }
    with one_line_failures(PROGRAM):
        loaded = load_proxy(config_file, overrides(named, assignments), os.environ)
    if print_settings:
        show(loaded.settings.describe(), loaded.notices)
        return
    with one_line_failures(PROGRAM):
        run(loaded)


command.params.insert(0, version_option())


def load_proxy(
    file: Path | None, from_command: Mapping[str, str], environ: Mapping[str, str]
) -> Loaded[ProxySettings]:
    """Raises ConfigError for settings that cannot be used."""
    layers = [_file_layer(file)] if file is not None else []
    layers += environment_layers(ProxySettings, environ)
    loaded = load(ProxySettings, [*layers, Layer("the command line", from_command)])
    if not loaded.settings.namesrv_addr:
        raise ConfigError("namesrvAddr", "", "host:port of a name server, with -n or in NAMESRV_ADDR")
    return loaded


def _file_layer(path: Path) -> Layer:
    """java: the file is JSON; a properties file will do as well."""
    if path.suffix != ".json":
        return file_layer(path)
    try:
        values = json.loads(path.read_text())
    except OSError as problem:
        raise ConfigError("-pc", path, f"a file that can be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ConfigError("-pc", path, f"a JSON object: {problem}") from None
    if not isinstance(values, dict):
        raise ConfigError("-pc", path, "a JSON object")
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return Layer(str(path), texts, is_file=True)


class ProxyWithBroker(Together):
    """A proxy and a broker whose ports serve HTTP/2, too."""

    def __init__(self, settings: ProxySettings, configuration: BrokerConfiguration) -> None:
        from pyromq.proxy.proxy import Proxy

        super().__init__(lambda: self.broker, self._proxy_of_broker)
        # The proxy calls the broker as the broker calls other servers.
        inner = settings.inner_credentials or configuration.broker.inner_credentials
        self.proxy = Proxy(replace(settings, inner_credentials=inner))
        self.broker = Broker(configuration, http2=self.proxy)
        self.proxy.in_process = self.broker.server_at

    def _proxy_of_broker(self) -> "Proxy":
        self.proxy.access = self.broker.access
        return self.proxy


def local_broker(settings: ProxySettings) -> BrokerConfiguration:
    """The settings of the broker that LOCAL starts; it registers with the name servers of the proxy."""
    layers = [file_layer(settings.broker_config_path)] if settings.broker_config_path is not None else []
    for part in (BrokerSettings, StoreSettings):
        layers += environment_layers(part, os.environ)
    configuration = load_broker(layers)
    broker = replace(configuration.broker, namesrv_addr=settings.namesrv_addr)
    return configuration._replace(broker=broker)


def run(loaded: Loaded[ProxySettings]) -> None:
    """Run a proxy until a signal stops it."""
    from pyromq.apps.serving import serve

    try:
        from pyromq.proxy.proxy import Proxy
    except ModuleNotFoundError as missing:
        fail(PROGRAM, f"{missing}: pip install 'pyromq[grpc]'")
    settings = loaded.settings
    defaults, directories = ProxySettings().as_java_dict(), list[Path]()
    if settings.is_local:
        configuration = local_broker(settings)
        directories.append(configuration.store.root)
        server: ProxyWithBroker | Proxy = ProxyWithBroker(settings, configuration)
    else:
        server = Proxy(settings)
    start_log(settings, LOG_FILE, loaded.notices, settings.as_java_dict(), defaults, directories)
    proxy = server.proxy if isinstance(server, ProxyWithBroker) else server

    def started() -> None:
        warn_if_open(settings, proxy.addresses)
        log.info("serving gRPC address=%s mode=%s", format_address(*proxy.address), settings.mode)
        # java: operators' scripts wait for this line, up to the comma.
        announce(f"rocketmq-proxy startup successfully, address {format_address(*proxy.address)}")

    serve(server, started)


def main() -> None:
    command(prog_name=PROGRAM)
