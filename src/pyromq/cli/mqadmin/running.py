"""Runs a command as a coroutine with a cluster, and defines the options that every command has."""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import click

from pyromq.admin import brokers
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import Incomplete
from pyromq.cli.mqadmin.options import SECONDS, arguments, declared_options, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Facts, Report, ReportLines
from pyromq.cluster.connection_url import (
    ConnectionUrl,
    credentials_in,
    from_environment,
    keys_from_environment,
    tls_from_environment,
)
from pyromq.remoting.tls import TlsOptions

ACCESS = "pyromq.access"
"""In the context of a command: how it comes to the cluster, as `with_advice` wants to know it."""

Handler: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


def _opened(
    namesrv: Annotated[
        str | None,
        option(
            "-n --namesrvAddr",
            "The name servers, separated by `;`, or a URL.  [env: PYROMQ_URL, NAMESRV_ADDR]",
            metavar="HOST:PORT",
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    timeout_s: Annotated[
        float, option("--timeout", "The timeout of each request in seconds.", SECONDS, metavar="SECONDS")
    ] = 5.0,
    key_file: Annotated[
        Path | None,
        option(
            "--key-file",
            "Sign requests with AccessKey= and SecretKey= of this file."
            "  [env: MQADMIN_KEY_FILE, PYROMQ_KEY_FILE]",
            metavar="FILE",
            envvar="MQADMIN_KEY_FILE",
        ),
    ] = None,
    use_tls: Annotated[bool, flag("--tls", "Connect with TLS; certificates are not checked.")] = False,
    tls_trust: Annotated[
        Path | None,
        option(
            "--tls-trust",
            "Connect with TLS; certificates are checked against this file.  [env: PYROMQ_TLS_TRUST]",
            metavar="FILE",
        ),
    ] = None,
) -> tuple[Cluster, Output]:
    """The options of every command, and what they choose."""
    url = ConnectionUrl.parse(namesrv) if namesrv is not None else from_environment(os.environ)
    credentials = credentials_in(key_file) if key_file is not None else url.credentials
    cluster = Cluster(
        url.namesrv,
        timeout_s=timeout_s,
        credentials=credentials or keys_from_environment(os.environ),
        tls=TlsOptions.chosen(use_tls, tls_trust) or url.tls or tls_from_environment(os.environ),
    )
    return cluster, Output(as_json=as_json)


def admin_command(name: str) -> Callable[[Handler], click.Command]:
    """Turn a coroutine function `f(cluster, out, **options)` into a command; its docstring is the help."""

    def decorate(handler: Handler) -> click.Command:
        common = declared_options(_opened)

        @functools.wraps(handler)
        def run(**given: Any) -> None:
            cluster, out = _opened(**{each.name: given.pop(each.name) for each in common})
            click.get_current_context().meta[ACCESS] = {
                "is_signed": cluster.is_signing,
                "is_tls": cluster.is_tls,
            }

            async def work() -> None:
                async with cluster:
                    await handler(cluster, out, **arguments(handler, given))
                if cluster.unanswered:
                    raise Incomplete(cluster.unanswered)

            asyncio.run(work())

        parameters = [*declared_options(handler), *common]
        settings = {"help_option_names": ["-h", "--help"]}
        return click.command(name, params=parameters, context_settings=settings)(run)

    return decorate


# Targets


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


async def each_broker(
    cluster: Cluster, addresses: list[str], part: Callable[[str, dict[str, str]], Facts | ReportLines]
) -> Report:
    """A report with a part for the figures of each broker; those that do not answer are named."""
    found = await cluster.known(brokers.runtime_info(cluster, each) for each in addresses)
    return Report(
        [
            ReportLines([f"{address} does not answer"], {address: None})
            if figures is None
            else part(address, figures)
            for address, figures in zip(addresses, found, strict=True)
        ]
    )
