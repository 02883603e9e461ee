"""`pyromq version`."""

import platform

import click


@click.command()
def version() -> None:
    """Print the version of PyroMQ and of what it runs on."""
    from pyromq import __version__
    from pyromq.compiled import WHY

    click.echo(f"pyromq {__version__} on Python {platform.python_version()}, {platform.system()}")
    click.echo(f"compiled core: {WHY}")
