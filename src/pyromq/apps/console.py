"""`pyromq console` runs the web console; `pyromq console user` changes who may log in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyromq.apps.launching import (
    announce,
    assignments_option,
    begin_log,
    fail,
    one_line_failures,
    overrides,
    show,
)
from pyromq.cluster.connection_url import KEY_FILE_VARIABLE, TRUST_VARIABLE
from pyromq.config.loading import Layer, Loaded, environment_layers, file_layer, load
from pyromq.console.settings import ConsoleSettings

if TYPE_CHECKING:
    from pyromq.console.bodies import Decode

PROGRAM = "pyromq console"
LOG_FILE = "console.log"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n", "--namesrv", help="The name servers, as 'host:port;host:port'; the same as -o namesrvAddr=…"
)
@click.option("--host", help="Address to listen on, 127.0.0.1 by default. Any other address requires users.")
@click.option("--port", help="The TCP port to listen on, 8088 by default.")
@click.option("--read-only", is_flag=True, help="Disable every operation that changes something.")
@click.option(
    "-c", "--config-file", type=click.Path(path_type=Path), help="Read settings from this properties file."
)
@click.option(
    "--key-file",
    metavar="FILE",
    help=f"Sign requests to the clusters with the keys in this file.  [env var: {KEY_FILE_VARIABLE}]",
)
@click.option(
    "--tls-trust",
    metavar="FILE",
    help=f"Use TLS to the clusters, and check certificates against this file.  [env var: {TRUST_VARIABLE}]",
)
@click.option(
    "-p", "--print-settings", "print_settings", is_flag=True, help="Print all settings and do not start."
)
@assignments_option
@click.pass_context
def console(
    ctx: click.Context,
    namesrv: str | None,
    host: str | None,
    port: str | None,
    read_only: bool,
    config_file: Path | None,
    key_file: str | None,
    tls_trust: str | None,
    print_settings: bool,
    assignments: tuple[str, ...],
) -> None:
    """Run the web console for one or more clusters, PyroMQ or Apache.

    Settings come from the file, the environment and the command line; the last one given wins.
    Variables that several programs share, such as NAMESRV_ADDR, are defaults: the file wins over them.
    `pyromq config console` lists them all.
    """
    named = {
        "namesrvAddr": namesrv,
        "bindAddress": host,
        "listenPort": port,
        "readOnly": "true" if read_only else None,
        "keyFile": key_file,
        "clusterTrustPath": tls_trust,
    }
    with one_line_failures(PROGRAM):
        loaded = load_console(config_file, overrides(named, assignments), os.environ)
    if ctx.invoked_subcommand is not None:
        ctx.obj = loaded.settings
    elif print_settings:
        show(loaded.settings.describe(), loaded.notices)
    elif not loaded.settings.cluster_addresses():
        raise click.UsageError("no name server given: set -n HOST:PORT or NAMESRV_ADDR")
    else:
        with one_line_failures(PROGRAM):
            _run(loaded)


def load_console(
    file: Path | None, from_command: Mapping[str, str], environ: Mapping[str, str]
) -> Loaded[ConsoleSettings]:
    """Raises ConfigError for settings that cannot be used."""
    layers = [file_layer(file)] if file is not None else []
    layers += environment_layers(ConsoleSettings, environ)
    return load(ConsoleSettings, [*layers, Layer("the command line", from_command)])


def _run(loaded: Loaded[ConsoleSettings]) -> None:
    from pyromq.apps.serving import serve

    try:
        from pyromq.console.server import Console
    except ModuleNotFoundError as missing:
        fail(PROGRAM, f"{missing}: pip install 'pyromq[console]'")
    settings = loaded.settings
    begin_log(settings, LOG_FILE, loaded.notices, settings.as_java_dict(), ConsoleSettings().as_java_dict())
    server = Console(settings, decode=_decoder(settings))
    serve(server, lambda: say_where(server.url, server.first_password), collect_at=Console.COLLECT_AT)


def _decoder(settings: ConsoleSettings) -> "Decode | None":
    if not settings.schema_registry:
        return None
    from pyromq.spark.registered_bodies import RegisteredBodies

    registry, auth = settings.schema_registry, settings.schema_registry_auth
    return RegisteredBodies(registry, auth, settings.timeout_seconds).decode


def say_where(url: str, first_password: str | None) -> None:
    """The address and, once, the password of the first administrator."""
    announce(f"The console is at {url}")
    if first_password is not None:
        click.echo(f"Log in as admin with {first_password} (it is shown only now)")


def _own_file(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Settings of the file that a subcommand names, instead of those of the console."""
    if file is not None:
        with one_line_failures(PROGRAM):
            ctx.obj = load_console(file, {}, os.environ).settings


_OWN_FILE = click.option(
    "-c",
    "--config-file",
    type=click.Path(path_type=Path),
    callback=_own_file,
    expose_value=False,
    help="The properties file of the console whose users are meant.",
)


@console.group()
def user() -> None:
    """Manage users. A running console picks up changes within a second."""


@user.command("add")
@_OWN_FILE
@click.argument("name")
@click.option(
    "--role", type=click.Choice(["viewer", "operator", "admin"]), default="viewer", show_default=True
)
@click.option("--bodies", is_flag=True, help="May read the bodies of messages.")
@click.option(
    "--names",
    multiple=True,
    metavar="PATTERN",
    help="Restrict changes to topics and groups that match this pattern; repeatable.",
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the password from the first line of this file instead of asking for it.",
)
@click.pass_obj
def add(
    settings: ConsoleSettings,
    name: str,
    role: str,
    bodies: bool,
    names: tuple[str, ...],
    password_file: Path | None,
) -> None:
    """Add a user, or change one."""
    from pyromq.console.security.roles import role_of
    from pyromq.console.security.users import Users

    if password_file is not None:
        password = password_file.read_text().partition("\n")[0]
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    Users(settings.users_file).load().put(name, password, role_of(role), reads_bodies=bodies, names=names)
    click.echo(f"{name} may log in as {role}; users are in {settings.users_file}")


@user.command("remove")
@_OWN_FILE
@click.argument("name")
@click.pass_obj
def remove(settings: ConsoleSettings, name: str) -> None:
    """Remove a user."""
    from pyromq.console.security.users import Users

    Users(settings.users_file).load().remove(name)
    click.echo(f"{name} may not log in any more")


@user.command("list")
@_OWN_FILE
@click.pass_obj
def names_of(settings: ConsoleSettings) -> None:
    """List the users and their roles."""
    from pyromq.console.security.users import Users

    users = Users(settings.users_file).load()
    for name in users.names():
        person = users.person(name)
        assert person is not None
        click.echo(f"{name}\t{person.role.word}")
