"""mqadmin manages a cluster from the command line; a failure is one line with a hint."""

import logging

from pyromq.cli.mqadmin.tree import mqadmin


def main() -> None:
    # Errors are shown once, as the failure of the command.
    logging.getLogger("pyromq").addHandler(logging.NullHandler())
    mqadmin(prog_name="mqadmin")
