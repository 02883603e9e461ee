"""`pyromq version`."""

import platform

import click


@click.command()
def version() -> None:
    """Print the versions of PyroMQ, Python and the compiled core."""
    from pyromq import __version__
    from pyromq.compiled import WHY

    click.echo(f"pyromq {__version__} on Python {platform.python_version()}, {platform.system()}")
    click.echo(f"compiled core: {WHY}")
