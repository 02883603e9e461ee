"""mqadmin: the whole cluster from the command line; each failure is one line and what to try next."""

import logging

from pyromq.cli.mqadmin.tree import mqadmin


def main() -> None:
    # What goes wrong is told once, as the failure of the command.
    logging.getLogger("pyromq").addHandler(logging.NullHandler())
    mqadmin(prog_name="mqadmin")
