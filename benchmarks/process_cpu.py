"""CPU seconds of processes, as the kernel counts them: all threads, user and system."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """What a process and those of its children that are gone have used."""
    return _stat(pid)[1]


def cpu_seconds_of_tree(pid: int) -> float:
    """The same for a process and everything below it."""
    used: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                used[int(entry.name)] = _stat(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    return sum(seconds for each, (_, seconds) in used.items() if _is_below(each, pid, used))


def _is_below(pid: int, root: int, used: dict[int, tuple[int, float]]) -> bool:
    while pid != root:
        if pid not in used:
            return False
        pid = used[pid][0]
    return True


def _stat(pid: int) -> tuple[int, float]:
    """The parent, and the CPU seconds."""
    # The program's name may hold anything, but it ends with the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_S
