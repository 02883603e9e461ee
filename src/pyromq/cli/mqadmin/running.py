"""Runs a command as a coroutine with a cluster, and defines the options that every command has."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import Incomplete
from pyromq.cli.mqadmin.output import Output
from pyromq.errors import ConfigError
from pyromq.remoting.tls import TlsOptions

if TYPE_CHECKING:
    from pyromq.security.signature import Credentials

F = TypeVar("F", bound=Callable[..., Any])
Handler: TypeAlias = Callable[..., Coroutine[Any, Any, None]]

NAMESRV_ADDR = "NAMESRV_ADDR"


def text(value: str) -> str:
    """A text without surrounding spaces; click shows the name of this function in its help."""
    return value.strip()


TEXT = text
COUNT = click.IntRange(min=0)
FILE = click.Path(path_type=Path)

_COMMON = (
    click.option(
        "-n",
        "--namesrvAddr",
        "namesrv",
        type=TEXT,
        metavar="HOST:PORT",
        envvar=NAMESRV_ADDR,
        help="The name servers, separated by `;`.  [env: NAMESRV_ADDR]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="The timeout of each request in seconds.",
    ),
    click.option(
        "--key-file",
        type=FILE,
        metavar="FILE",
        envvar="MQADMIN_KEY_FILE",
        help="Sign requests with AccessKey= and SecretKey= of this file.  [env: MQADMIN_KEY_FILE]",
    ),
    click.option("--tls", "use_tls", is_flag=True, help="Connect with TLS; certificates are not checked."),
    click.option(
        "--tls-trust",
        type=FILE,
        metavar="FILE",
        help="Connect with TLS; certificates are checked against this file.",
    ),
)


def admin_command(name: str) -> Callable[[Handler], click.Command]:
    """Turn a coroutine function `f(cluster, out, **options)` into a command; its docstring is the help."""

    def decorate(handler: Handler) -> click.Command:
        @functools.wraps(handler)
        def run(
            namesrv: str | None,
            as_json: bool,
            timeout_s: float,
            key_file: Path | None,
            use_tls: bool,
            tls_trust: Path | None,
            **options: Any,
        ) -> None:
            cluster = Cluster(
                namesrv or "",
                timeout_s=timeout_s,
                credentials=_credentials(key_file),
                tls=TlsOptions.chosen(use_tls, tls_trust),
            )
            out = Output(as_json=as_json)

            async def work() -> None:
                async with cluster:
                    await handler(cluster, out, **options)
                if cluster.unanswered:
                    raise Incomplete(cluster.unanswered)

            asyncio.run(work())

        decorated: Callable[..., None] = run
        for option in reversed(_COMMON):
            decorated = option(decorated)
        # Help lists options in the order of the decorators, from the inside out.
        parameters = decorated.__dict__["__click_params__"]
        decorated.__dict__["__click_params__"] = parameters[-len(_COMMON) :] + parameters[: -len(_COMMON)]
        return click.command(name, context_settings={"help_option_names": ["-h", "--help"]})(decorated)

    return decorate


def _credentials(key_file: Path | None) -> "Credentials | None":
    if key_file is None:
        return None
    from pyromq.security.signature import credentials_from_text

    try:
        return credentials_from_text(key_file.read_text())
    except OSError as problem:
        raise ConfigError("--key-file", key_file, f"a readable file ({problem.strerror})") from problem


# Targets


def where_options(command: F) -> F:
    """-b and -c: one broker, or all masters of a cluster."""
    for option in (
        click.option(
            "-c",
            "--clusterName",
            "--cluster",  # java: the name of this option in some commands
            "cluster_name",
            type=TEXT,
            help="All masters of this cluster.",
        ),
        click.option(
            "-b", "--brokerAddr", "broker", type=TEXT, help="This broker: its address, or its name."
        ),
    ):
        command = option(command)
    return command


def one_of(broker: str | None, cluster_name: str | None) -> None:
    """Require exactly one of -b and -c."""
    if (broker is None) == (cluster_name is None):
        raise click.UsageError("give either -b BROKER or -c CLUSTER; `mqadmin clusterList` shows both")


async def address_of(cluster: Cluster, broker: str) -> str:
    """The address of a broker, given by address or by name."""
    return broker if ":" in broker else await cluster.broker_address(broker)


async def addresses_of(
    cluster: Cluster, broker: str | None, cluster_name: str | None, *, replicas: bool = False
) -> list[str]:
    """The addresses that -b or -c select."""
    one_of(broker, cluster_name)
    if broker is not None:
        return [await address_of(cluster, broker)]
    members = await (cluster.members(cluster_name) if replicas else cluster.masters(cluster_name))
    return [member.address for member in members]
