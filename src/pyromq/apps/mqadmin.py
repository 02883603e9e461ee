"""mqadmin: the whole cluster from the command line; each failure is one line and what to try next."""

from pyromq.cli.mqadmin.tree import mqadmin


def main() -> None:
    mqadmin(prog_name="mqadmin")
