"""mqbroker loads settings and runs a broker; a failure to start is one line on stderr."""

import logging
from dataclasses import replace
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
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, load_broker
from pyromq.config.loading import Layer
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.store.settings import StoreSettings

PROGRAM = "mqbroker"
LOG_FILE = "broker.log"

log = logging.getLogger("pyromq.apps.broker")

# java: the settings that Apache's broker marks as important and that have an effect here, and bindAddress.
IMPORTANT_KEYS = frozenset(
    [
        "accessMessageInMemoryMaxRatio",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "bindAddress",
        "brokerClusterName",
        "brokerId",
        "brokerIP1",
        "brokerIP2",
        "brokerName",
        "brokerPermission",
        "brokerRole",
        "cleanFileForciblyEnable",
        "clusterTopicEnable",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "fileReservedTime",
        "flushDiskType",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "haListenPort",
        "listenPort",
        "maxHashSlotNum",
        "maxIndexNum",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "messageIndexEnable",
        "msgTraceTopicName",
        "namesrvAddr",
        "rejectTransactionMessage",
        "storePathCommitLog",
        "storePathRootDir",
        "storeReplyMessageEnable",
        "syncFlushTimeout",
        "traceTopicEnable",
        "warmMapedFileEnable",
    ]
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@server_options(LOG_FILE)
@click.option(
    "-m", "--printImportantConfig", "print_important", is_flag=True, help="Print the important settings only."
)
@click.option("-n", "--namesrvAddr", "namesrv_addr", help="The name servers, as 'host:port;host:port'.")
@click.option("--store", help="The directory of the store; the same as -o storePathRootDir=DIR.")
def command(
    config_file: Path | None,
    print_settings: bool,
    print_important: bool,
    namesrv_addr: str | None,
    port: str | None,
    store: str | None,
    log_dir: str | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a RocketMQ broker.

    Settings come from the file, the environment and the command line; the last one given wins.
    Variables that several programs share, such as NAMESRV_ADDR, are defaults: the file wins over them.
    `pyromq config broker` and `pyromq config store` list them all.
    """
    from_command = overrides(
        {"namesrvAddr": namesrv_addr, "listenPort": port, "storePathRootDir": store, "logDir": log_dir},
        assignments,
    )
    with one_line_failures(PROGRAM):
        sources = layers([BrokerSettings, StoreSettings], config_file, "brokerConfigPath", from_command)
        configuration = load_broker(list(map(_without_filter_servers, sources)))
    if print_settings or print_important:
        text = configuration.describe()
        show(text if print_settings else _important(text), configuration.notices)
        return
    with one_line_failures(PROGRAM):
        run(configuration)


def run(configuration: BrokerConfiguration) -> None:
    """Run a broker until a signal stops it."""
    from pyromq.apps.serving import serve
    from pyromq.broker.broker import Broker
    from pyromq.clock import SystemClock
    from pyromq.remoting.program import Startable, Together

    settings = configuration.broker
    defaults = BrokerConfiguration(BrokerSettings(), StoreSettings())
    start_log(
        settings,
        LOG_FILE,
        configuration.notices,
        configuration.as_java_dict(),
        defaults.as_java_dict(),
        [configuration.store.root],
    )
    broker = Broker(configuration, clock=SystemClock())
    served: Startable = broker
    if settings.filter_servers:
        from pyromq.apps.filter_servers_beside import FilterServersBeside

        served = Together(lambda: broker, lambda: FilterServersBeside(broker, configuration))

    def started() -> None:
        warn_if_open(settings, broker.addresses)
        # java: operators' scripts wait for exactly this line.
        line = (
            f"The broker[{settings.broker_name}, {broker.advertised_address}] boot success. "
            f"serializeType={settings.serialize_type}"
        )
        announce(line + (f" and name server is {settings.namesrv_addr}" if settings.namesrv_addr else ""))

    serve(served, started)


def _without_filter_servers(layer: Layer) -> Layer:
    """java: a filter server reads the settings file of its broker, so the file has its keys, too."""
    theirs = {
        key
        for key in layer.values
        if BrokerSettings.find(key) is None
        and StoreSettings.find(key) is None
        and FilterServerSettings.find(key) is not None
    }
    return replace(layer, values={key: text for key, text in layer.values.items() if key not in theirs})


def _important(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("=")[0] in IMPORTANT_KEYS)


def main() -> None:
    command(prog_name=PROGRAM)
