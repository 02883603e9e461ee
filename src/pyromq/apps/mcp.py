"""pyromq mcp: an MCP server over stdin and stdout, or over HTTP on this machine."""

import asyncio
import getpass
import hmac
import os
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from pyromq.client.settings import ClientSettings, TlsOptions
from pyromq.clock import SystemClock
from pyromq.cluster.connection_url import KEY_FILE_VARIABLE, TRUST_VARIABLE
from pyromq.console.security.audit import AuditLog
from pyromq.errors import ConfigError, PyroError

TOKEN_VARIABLE = "PYROMQ_MCP_TOKEN"
_AUDIT_BYTES, _AUDIT_BACKUPS = 10 * 1024 * 1024, 5
_HOST = "127.0.0.1"
_KEYS = {"namesrv", "key_file", "tls", "tls_trust"}

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


@click.command()
@click.option("-n", "--namesrv", help="The name servers, or a URL; without it PYROMQ_URL or NAMESRV_ADDR.")
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Sign requests with AccessKey= and SecretKey= of this file.  [env var: {KEY_FILE_VARIABLE}]",
)
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option(
    "--tls-trust",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Connect with TLS, and check the servers' certificates against those in this file (PEM)."
    f"  [env var: {TRUST_VARIABLE}]",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with several clusters: [clusters.NAME] with namesrv, key_file, tls, tls_trust.",
)
@click.option("--allow-changes", is_flag=True, help="Offer tools that change something, after a preview.")
@click.option("--show-bodies", is_flag=True, help="Show bodies of messages, cut to 1 KiB.")
@click.option(
    "--mask",
    multiple=True,
    metavar="NAME",
    help="Hide fields and properties with this name; * and ? are wildcards.",
)
@click.option("--config-key", multiple=True, metavar="KEY", help="A broker setting that may be changed.")
@click.option("--who", default=None, help="Name in the audit log; default: the user of this process.")
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path.home() / ".pyromq" / "mcp-audit.log",
    help="Default: .pyromq/mcp-audit.log in the home directory.",
)
@click.option(
    "--http", type=click.IntRange(1, 65535), metavar="PORT", help=f"Serve HTTP on {_HOST}, path /mcp."
)
def command(
    namesrv: str | None,
    key_file: Path | None,
    tls: bool,
    tls_trust: Path | None,
    config: Path | None,
    audit_log: Path,
    http: int | None,
    who: str | None,
    **options: Any,
) -> None:
    """Let an assistant inspect clusters, over MCP.

    Credentials come from the environment or from key files, never from the assistant. Over HTTP the variable
    PYROMQ_MCP_TOKEN must be set; clients send it as a bearer token.
    """
    if config is not None and any([namesrv, key_file, tls, tls_trust]):
        raise click.UsageError("--config names the clusters: give it without --namesrv, --key-file and --tls")
    try:
        if config is not None:
            clusters = clusters_in(config)
        else:
            chosen = TlsOptions.chosen(tls, tls_trust)
            clusters = {"default": ClientSettings.of(namesrv, tls=chosen, key_file=key_file)}
    except PyroError as problem:
        raise click.UsageError(str(problem)) from problem
    token = os.environ.get(TOKEN_VARIABLE, "")
    if http is not None and not token:
        raise click.UsageError(f"--http needs a token: set {TOKEN_VARIABLE}")
    try:
        # Imported late: it is optional, and large.
        from pyromq.mcp.desk import Desk, DeskSettings
        from pyromq.mcp.server import new_server
    except ImportError as problem:
        raise click.ClickException(f"{problem}: pip install 'pyromq[mcp]'") from problem
    settings = DeskSettings(
        clusters=clusters,
        who=who or getpass.getuser(),
        allow_changes=options["allow_changes"],
        show_bodies=options["show_bodies"],
        masked_fields=options["mask"],
        config_keys=frozenset(options["config_key"]),
    )
    audit = AuditLog(audit_log, SystemClock(), max_bytes=_AUDIT_BYTES, backups=_AUDIT_BACKUPS)
    server = new_server(Desk(settings, audit))
    if http is None:
        asyncio.run(server.run_stdio_async())
        return
    import uvicorn

    app = with_token(server.streamable_http_app(host=_HOST), token)
    uvicorn.run(app, host=_HOST, port=http, log_level="warning")


def clusters_in(path: Path) -> dict[str, ClientSettings]:
    """Each with its own credentials."""
    try:
        found = tomllib.loads(path.read_text()).get("clusters", {})
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError("--config", path, f"TOML; {problem}") from None
    if not isinstance(found, dict) or not found:
        raise ConfigError("--config", path, "at least one [clusters.NAME]")
    clusters = {}
    for name, given in found.items():
        if unknown := sorted(set(given) - _KEYS):
            raise ConfigError(f"clusters.{name}", unknown[0], f"one of {', '.join(sorted(_KEYS))}")
        trust = given.get("tls_trust")
        tls = TlsOptions.chosen(given.get("tls", False), None if trust is None else Path(trust))
        key_file = given.get("key_file")
        clusters[name] = ClientSettings.of(
            given.get("namesrv", ()), tls=tls, key_file=None if key_file is None else Path(key_file)
        )
    return clusters


def with_token(app: App, token: str) -> App:
    """Answers 401 to whoever does not send the token."""
    expected = f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, expected):
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b"a bearer token is needed\n"})
                return
        await app(scope, receive, send)

    return guarded
