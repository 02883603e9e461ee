"""`pyromq version`, and `--version` of every command."""

import platform

import click


def version_option(*, hidden: bool = False) -> click.Option:
    def show(ctx: click.Context, option: click.Parameter, is_given: bool) -> None:
        if is_given and not ctx.resilient_parsing:
            print_versions()
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        hidden=hidden,
        help="Print the version and exit.",
    )


@click.command()
def version() -> None:
    """Print the versions of PyroMQ, Python and the compiled core."""
    print_versions()


def print_versions() -> None:
    from pyromq import __version__, compiled

    click.echo(f"pyromq {__version__} on Python {platform.python_version()}, {platform.system()}")
    for name in compiled.MODULES:
        compiled.twin(name)  # one that cannot be loaded is found only now
    click.echo(f"compiled core: {compiled.WHY}")
