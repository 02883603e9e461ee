"""Several writers that create the same file of a journal at once."""

import threading
from typing import Final

from pyromq.spark.journal_files import journal_files

WRITERS: Final = 6


def race(journal: str, name: str, wait_s: float, copies: int = 1) -> list[bytes]:
    """The data of those who were allowed to create the file, each of which was `copies` times a number."""
    begin, won = threading.Barrier(WRITERS), list[bytes]()

    def write(data: bytes) -> None:
        files = journal_files(journal)
        begin.wait(wait_s)
        try:
            files.create(name, data)
        except FileExistsError:
            return
        won.append(data)

    threads = [threading.Thread(target=write, args=(b"%d" % each * copies,)) for each in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wait_s)
    return won
