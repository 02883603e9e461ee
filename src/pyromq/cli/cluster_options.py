"""The options for name servers, credentials and TLS, the same for every command that talks to a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from pyromq.cli.hints import SIGN, USE_TLS, is_hung_up
from pyromq.client.settings import ClientOptions, ClientSettings, Credentials, TlsOptions
from pyromq.cluster.connection_url import ADDRESS_VARIABLE, KEY_FILE_VARIABLE, TRUST_VARIABLE, URL_VARIABLE
from pyromq.errors import ConfigError, PyroError, Refused, SendFailed, TransportError
from pyromq.protocol.codes import ResponseCode

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "-n",
        "--namesrv",
        envvar=[URL_VARIABLE, ADDRESS_VARIABLE],
        show_envvar=True,
        metavar="HOST:PORT",
        help="The name servers, separated by `;`, or a URL: rocketmq://user:secret@host:9876/namespace",
    ),
    click.option(
        "--access-key", envvar="PYROMQ_ACCESS_KEY", show_envvar=True, help="Sign requests as this user."
    ),
    click.option(
        "--secret-key",
        envvar="PYROMQ_SECRET_KEY",
        show_envvar=True,
        help="The user's secret; others on this machine can read command lines, but not the environment.",
    ),
    click.option(
        "--key-file",
        envvar=KEY_FILE_VARIABLE,
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Sign requests with AccessKey= and SecretKey= of this file.",
    ),
    click.option("--namespace", help="The namespace of the topic and the group."),
    click.option("--tls", is_flag=True, help="Connect with TLS."),
    click.option(
        "--tls-trust",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Connect with TLS, and check the servers' certificates against those in this file (PEM)."
        f"  [env var: {TRUST_VARIABLE}]",
    ),
)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    namesrv: str
    options: ClientOptions = field(default_factory=lambda: ClientOptions())

    def settings(self) -> ClientSettings:
        return ClientSettings.of(self.namesrv, **self.options)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn a failure inside into one line with a hint."""
        try:
            yield
        except PyroError as problem:
            raise click.ClickException(self.explanation(problem)) from problem

    def explanation(self, problem: PyroError) -> str:
        text, settings = str(problem), self.settings()
        last = problem.last if isinstance(problem, SendFailed) else problem
        if isinstance(last, Refused) and last.code == ResponseCode.NO_PERMISSION:
            return text if settings.credentials is not None else f"{text}; {SIGN}"
        if not isinstance(problem, TransportError | SendFailed):
            return text
        if is_hung_up(text) and settings.tls is None:
            return f"{text}; {USE_TLS}"
        if any(f"{address}:" in text for address in settings.namesrv):
            return f"{text}; is a name server running there? `pyromq standalone` starts a whole cluster"
        return f"{text}; is the broker running, and can this machine reach the address it registered?"


def cluster_options(command: F) -> F:
    """Add these options to a command, which receives them as one argument, `cluster`."""

    @wraps(command)
    def with_cluster(
        *arguments: Any,
        namesrv: str | None,
        access_key: str | None,
        secret_key: str | None,
        key_file: Path | None,
        namespace: str | None,
        tls: bool,
        tls_trust: Path | None,
        **others: Any,
    ) -> Any:
        if not namesrv:
            raise click.UsageError(
                "no name server given: set -n HOST:PORT, PYROMQ_URL or NAMESRV_ADDR;"
                " `pyromq standalone` starts one"
            )
        if (access_key is None) != (secret_key is None):
            raise click.UsageError("--access-key and --secret-key must be given together")
        options = ClientOptions(namespace=namespace, tls=TlsOptions.chosen(tls, tls_trust), key_file=key_file)
        if access_key is not None and secret_key is not None:
            options["credentials"] = Credentials(access_key, secret_key)
        cluster = ClusterOptions(namesrv, options)
        try:
            cluster.settings()
        except ConfigError as problem:
            raise click.UsageError(str(problem)) from problem
        return command(*arguments, cluster=cluster, **others)

    for option in reversed(_OPTIONS):
        option(with_cluster)
    return with_cluster  # type: ignore[return-value]
