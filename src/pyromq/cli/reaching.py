"""Options that say where the cluster is and who asks: the same for every command that talks to one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from pyromq.client.settings import ClientOptions, ClientSettings, Credentials, TlsOptions
from pyromq.errors import ConfigError, PyroError, SendFailed, TransportError

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        metavar="HOST:PORT",
        help="The name servers, separated by `;`.",
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
    click.option("--namespace", help="Put in front of the topic and the group."),
    click.option("--tls", is_flag=True, help="Speak TLS."),
    click.option(
        "--tls-trust",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Speak TLS, and only with servers whose certificate these certificates vouch for.",
    ),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, as the command line names it."""

    namesrv: str
    options: ClientOptions = field(default_factory=lambda: ClientOptions())

    def settings(self) -> ClientSettings:
        return ClientSettings.of(self.namesrv, **self.options)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A failure inside is told in one line, together with what to look at."""
        try:
            yield
        except PyroError as problem:
            raise click.ClickException(self.explanation(problem)) from problem

    def explanation(self, problem: PyroError) -> str:
        text = str(problem)
        if not isinstance(problem, TransportError | SendFailed):
            return text
        if any(f"{address}:" in text for address in self.settings().namesrv):
            return f"{text}; does a name server run there? `pyromq standalone` starts a whole cluster"
        return f"{text}; does the broker run, and can this machine reach the address that it registered?"


def cluster_options(command: F) -> F:
    """Give a command these options; it gets them as one argument, `cluster`."""

    @wraps(command)
    def with_cluster(
        *arguments: Any,
        namesrv: str | None,
        access_key: str | None,
        secret_key: str | None,
        namespace: str | None,
        tls: bool,
        tls_trust: Path | None,
        **others: Any,
    ) -> Any:
        if not namesrv:
            raise click.UsageError(
                "no name server: name one with -n HOST:PORT or in NAMESRV_ADDR; `pyromq standalone` runs one"
            )
        if (access_key is None) != (secret_key is None):
            raise click.UsageError("--access-key and --secret-key belong together")
        options = ClientOptions(namespace=namespace, tls=TlsOptions.chosen(tls, tls_trust))
        if access_key is not None and secret_key is not None:
            options["credentials"] = Credentials(access_key, secret_key)
        cluster = Cluster(namesrv, options)
        try:
            cluster.settings()
        except ConfigError as problem:
            raise click.UsageError(str(problem)) from problem
        return command(*arguments, cluster=cluster, **others)

    for option in reversed(_OPTIONS):
        option(with_cluster)
    return with_cluster  # type: ignore[return-value]
