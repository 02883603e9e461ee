"""pyromq standalone runs a whole cluster with one command, prints its addresses, and stops on a signal."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from pyromq.apps.console_beside import ConsoleBeside
from pyromq.apps.launching import keep_private, one_line_failures, warn_if_open
from pyromq.apps.secure_files import ADMINISTRATOR, BROKER, SecureFiles
from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from pyromq.standalone import StandaloneSettings

PROGRAM = "pyromq standalone"
DEFAULT_GRPC_PORT = 8081
DEFAULT_STORE = Path("~/.pyromq/standalone")

_PORT = click.IntRange(0, 65535)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--namesrv-port", type=_PORT, default=9876, help="Port of the name server; 0 chooses a free one."
)
@click.option(
    "--broker-port",
    type=_PORT,
    default=10911,
    help="Port of the broker, which also uses the port two below it. 0 chooses free ports.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(-1, 65535),
    default=None,
    show_default="8081, or a free one with --broker-port 0",
    help="Port for RocketMQ 5 clients; -1 turns it off.",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 accepts other machines.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=DEFAULT_STORE,
    help="Directory of all data, reused by the next start.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    default="async",
    help="sync acknowledges a send when the message is on disk, async before.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 26),
    default=1,
    help="Number of brokers with different names, each in a separate process so that it can use a core."
    " Topics are on all of them. Their ports are 10 apart.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=1,
    help="Number of brokers of each name that hold the same messages, each in a separate process. A"
    " controller chooses the master. Their ports are 10 apart.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Require users and TLS. Creates passwords and a certificate in the store.",
)
@click.option(
    "--lite", is_flag=True, help="Allow lite topics, and serve sessions over HTTP on the port for gRPC."
)
@click.option(
    "--console",
    "console_port",
    type=_PORT,
    is_flag=False,
    flag_value=8088,
    default=None,
    show_default=False,
    metavar="[PORT]",
    help="Also run the web console, on 127.0.0.1:8088 or this port.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log everything to the console, not only warnings.")
def command(
    namesrv_port: int,
    broker_port: int,
    grpc_port: int | None,
    host: str,
    store: Path,
    flush: str,
    brokers: int,
    replicas: int,
    secure: bool,
    lite: bool,
    console_port: int | None,
    verbose: bool,
) -> None:
    """Run a name server and a broker in one process, without any configuration.

    For laptops, demos and tests. It prints one line with its addresses when it is ready.
    """
    from pyromq.apps.logging_setup import set_up_audit_log, set_up_logging
    from pyromq.apps.serving import serve
    from pyromq.standalone import Standalone, StandaloneSettings

    set_up_logging("INFO" if verbose else "WARNING", None, 0, 0)
    has_processes = brokers > 1 or replicas > 1
    files = SecureFiles.of(store.expanduser().absolute())
    with one_line_failures(PROGRAM):
        if secure:
            keep_private(store.expanduser().absolute())
            files.make(host)
            set_up_audit_log(files.audit_log)
        settings = StandaloneSettings(
            store=store.expanduser().absolute(),
            host=host,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            grpc_port=_grpc_port(grpc_port, broker_port),
            flush=cast(Literal["async", "sync"], flush),
            brokers=brokers,
            replicas=replicas,
            lite=lite,
            servers=files.settings() if secure else {},
            broker=dict(BROKER) if secure else {},
        )
        if has_processes:
            _serve_processes(settings, files if secure else None, console_port)
            return
        cluster = Standalone(settings)
        beside = (
            None if console_port is None else ConsoleBeside(cluster, console_port, files if secure else None)
        )

        def ready() -> None:
            ports = [cluster.name_server.address, *cluster.broker.addresses]
            warn_if_open(cluster.broker.settings, ports)
            broker, data = cluster.broker.advertised_address, cluster.settings.store
            grpc = f", gRPC {cluster.grpc_address}" if cluster.settings.grpc_port is not None else ""
            click.echo(
                f"PyroMQ is ready: name server {cluster.namesrv}, broker {broker}{grpc}, data in {data}"
            )
            if secure:
                click.echo(_how_to_connect(files, cluster.namesrv))
            if beside is not None:
                beside.announce()

        serve(cluster if beside is None else beside, ready)


def _how_to_connect(files: SecureFiles, namesrv: str) -> str:
    """Commands to copy; the password stays in its file."""
    return (
        f"Only users get in. Keys of {ADMINISTRATOR}: {files.key_file}; certificate: {files.certificate};"
        f" audit log: {files.audit_log}\n"
        f"  mqadmin clusterList -n {namesrv} --key-file {files.key_file} --tls-trust {files.certificate}\n"
        f"  export PYROMQ_KEY_FILE={files.key_file} PYROMQ_TLS_TRUST={files.certificate}\n"
        f"  echo hello | pyromq produce Greetings -n {namesrv}"
    )


def _grpc_port(asked: int | None, broker_port: int) -> int | None:
    """The port for gRPC, if there is one; unless it was asked for, a missing package is not a reason to
    fail."""
    if asked == -1:
        return None
    missing = _missing_for_grpc()
    if missing and asked is not None:
        raise ConfigError("--grpc-port", asked, f"the packages of pip install 'pyromq[grpc]'; {missing}")
    if asked is None:
        return None if missing else DEFAULT_GRPC_PORT if broker_port else 0
    return asked


def _serve_processes(
    settings: "StandaloneSettings", files: SecureFiles | None, console_port: int | None
) -> None:
    from pyromq.apps.broker_processes import RESTART_S, BrokerProcesses
    from pyromq.apps.serving import serve

    cluster = BrokerProcesses(settings, click.echo, is_secure=files is not None)
    beside = None if console_port is None else ConsoleBeside(cluster, console_port, files)

    def ready() -> None:
        warn_if_open(settings.name_server_settings(), cluster.addresses)
        grpc = f", gRPC {cluster.grpc_address}" if cluster.grpc_address else ""
        click.echo(f"PyroMQ is ready: name server {cluster.namesrv}{grpc}, data in {settings.store}")
        for line in cluster.lines():
            click.echo(line)
        if files is not None:
            click.echo(_how_to_connect(files, cluster.namesrv))
        if settings.replicas > 1:
            click.echo(f"Kill any of them: no message is lost, and it comes back after {RESTART_S:.0f} s.")
        else:
            click.echo(f"A broker that dies starts again after {RESTART_S:.0f} s.")
        if beside is not None:
            beside.announce()

    serve(cluster if beside is None else beside, ready)


def _missing_for_grpc() -> str:
    """Why the gRPC front cannot run here; other programs may have brought a part of what it needs, or an
    old one."""
    try:
        for name in ("cryptography", "pyromq.proxy.proxy"):
            import_module(name)
    except ImportError as problem:
        return str(problem)
    return ""
