"""The options, settings and error handling that the commands of all servers share."""

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from pyromq.cli.version import version_option
from pyromq.config.loading import Layer, environment_layers, file_layer
from pyromq.config.settings import Notice, Settings
from pyromq.errors import PyroError
from pyromq.remoting.settings import ServerSettings

if TYPE_CHECKING:
    from pyromq.console.settings import ConsoleSettings

log = logging.getLogger("pyromq.apps")

F = TypeVar("F", bound=Callable[..., Any])


assignments_option = click.option(
    "-o",
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one setting; repeatable.",
)


def server_options(log_file: str) -> Callable[[F], F]:
    """The options of every server; a command receives them as config_file, print_settings, …"""
    options = (
        click.option(
            "-c",
            "--configFile",
            "config_file",
            type=click.Path(path_type=Path),
            help="Read settings from this properties file.",
        ),
        click.option(
            "-p",
            "--printConfigItem",
            "print_settings",
            is_flag=True,
            help="Print all settings and do not start.",
        ),
        click.option("--port", help="The TCP port to listen on; the same as -o listenPort=PORT."),
        click.option("--log-dir", help=f"The directory of {log_file}; the same as -o logDir=DIR."),
        assignments_option,
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        # click collects the options of a function here until it becomes a command.
        command.__click_params__.insert(0, version_option())  # type: ignore[attr-defined]
        return command

    return decorate


def overrides(named: Mapping[str, str | None], assignments: Iterable[str]) -> dict[str, str]:
    """The settings of the command line: named options, then `-o` assignments, which win."""
    values = {key: value for key, value in named.items() if value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise click.BadParameter(f"{assignment!r}: expected KEY=VALUE", param_hint="-o")
        values[key.strip()] = value
    return values


def layers(
    parts: Iterable[type[Settings]], file: Path | None, written_back_key: str, from_command: Mapping[str, str]
) -> list[Layer]:
    """The sources of settings: the file, the environment, the command line; `load` orders them."""
    found: list[Layer] = []
    if file is not None:
        found.append(file_layer(file))
        # java: changes made over the network are written to the file the server was started with.
        found.append(Layer("-c", {written_back_key: str(file.absolute())}))
    for part in parts:
        found += environment_layers(part, os.environ)
    found.append(Layer("the command line", from_command))
    return found


def show(text: str, notices: Iterable[Notice]) -> None:
    """Print settings on stdout, and warnings about them on stderr."""
    for notice in notices:
        click.echo(f"warning: {notice}", err=True)
    click.echo(text, nl=False)


def start_log(
    settings: ServerSettings,
    file_name: str,
    notices: Iterable[Notice],
    values: Mapping[str, str],
    defaults: Mapping[str, str],
    directories: Iterable[Path] = (),
) -> None:
    """`begin_log` of a server with an audit log. `directories` hold what it keeps; `privateFiles` closes
    them to other users."""
    from pyromq.apps.logging_setup import set_up_audit_log

    if settings.private_files:
        keep_private(*directories)
    if settings.audit_log_file is not None:
        set_up_audit_log(settings.audit_log_file, settings.log_max_bytes, settings.log_backups)
    begin_log(settings, file_name, notices, values, defaults)


def begin_log(
    settings: "ServerSettings | ConsoleSettings",
    file_name: str,
    notices: Iterable[Notice],
    values: Mapping[str, str],
    defaults: Mapping[str, str],
) -> None:
    """Set up logging; its first lines are warnings about settings, and the settings that are not defaults."""
    from pyromq.apps.logging_setup import set_up_logging

    file = settings.log_dir / file_name if settings.log_dir is not None else None
    set_up_logging(settings.log_level, file, settings.log_max_bytes, settings.log_backups)
    for notice in notices:
        log.warning("%s", notice)
    changed = sorted((key, value) for key, value in values.items() if defaults.get(key) != value)
    log.info("starting %s", " ".join(f"{key}={value}" for key, value in changed))


def keep_private(*directories: Path) -> None:
    """Close these directories, and files that are written from now on, to other users of this machine."""
    os.umask(0o077)
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)


def warn_if_open(settings: ServerSettings, addresses: Iterable[tuple[str, int]]) -> None:
    """Log a loud warning if anyone who can reach these addresses may do everything."""
    from pyromq.remoting.addresses import format_address
    from pyromq.remoting.networks import is_loopback

    reachable = [format_address(host, port) for host, port in addresses if not is_loopback(host)]
    if reachable and settings.lets_anyone_in:
        log.warning(
            "ANYONE who reaches %s may read, write and delete everything: there is no access control. "
            "Set denyByDefault=true and initAuthenticationUser, let only trusted machines reach it, or set "
            "bindAddress=127.0.0.1",
            " or ".join(reachable),
        )


def announce(line: str) -> None:
    """Say that the server is up, on stdout for scripts that wait for the line, and in the log's file."""
    click.echo(line)
    log.info("%s", line, extra={"is_on_console": False})


@contextmanager
def one_line_failures(program: str) -> Iterator[None]:
    """Turn a failure to start into one line on stderr and exit code 1."""
    try:
        yield
    except OSError as error:
        fail(program, _in_words(error))
    except PyroError as error:
        fail(program, " ".join([str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))]))


def fail(program: str, sentence: str) -> NoReturn:
    if logging.getLogger().hasHandlers():
        log.critical("could not start: %s", sentence, extra={"is_on_console": False})
    click.echo(f"{program}: {sentence}", err=True)
    sys.exit(1)


def _in_words(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"cannot use {error.filename}: {reason}"
    return reason + ("; choose another port" if error.errno == errno.EADDRINUSE else "")
