"""`pyromq config` prints the settings of a server as a table, as the reference page or as an example file."""

import click

from pyromq.broker.settings import BrokerSettings
from pyromq.config.reference import example_file, markdown
from pyromq.config.settings import Settings
from pyromq.console.settings import ConsoleSettings
from pyromq.controller.settings import ControllerSettings
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.nameserver.settings import NameServerSettings
from pyromq.proxy.settings import ProxySettings
from pyromq.store.settings import StoreSettings

PARTS: dict[str, type[Settings]] = {
    part.PART: part
    for part in (
        NameServerSettings,
        BrokerSettings,
        StoreSettings,
        ControllerSettings,
        ProxySettings,
        ConsoleSettings,
        FilterServerSettings,
    )
}


@click.command()
@click.argument("part", type=click.Choice(sorted(PARTS)))
@click.option("--markdown", "form", flag_value="markdown", help="Print the reference page.")
@click.option(
    "--example", "form", flag_value="example", help="Print a file with every setting commented out."
)
def config(part: str, form: str | None) -> None:
    """List every setting of PART with its default and meaning.

    The settings of the store go into the broker's file.
    """
    settings = PARTS[part]
    if form == "markdown":
        click.echo(markdown(settings), nl=False)
    elif form == "example":
        click.echo(example_file(settings), nl=False)
    else:
        _show_table(settings)


def _show_table(part: type[Settings]) -> None:
    from pyromq.cli.tables import console, table

    rows = table(f"Settings of {part.PART}", "key", "default", "meaning")
    for each in part.all_settings():
        if each.has_effect:
            rows.add_row(each.key, each.default_text, each.sentence)
    console().print(rows)
