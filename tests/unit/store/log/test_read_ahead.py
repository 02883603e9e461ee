"""Whether the system reads the log ahead of readers: what the kernel says about the mapped files."""

from dataclasses import replace
from pathlib import Path

from tests.support.small_stores import append, dispatch_all, small_settings

from pyromq.store.message_store import MessageStore


def files_without_read_ahead(directory: Path) -> dict[str, bool]:
    """Mapped files of a directory; the flag `rr` stands for random reads."""
    found: dict[str, bool] = {}
    name = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            path = Path(line.split(maxsplit=5)[-1])
            name = path.name if path.parent == directory else None
        elif line.startswith("VmFlags:") and name is not None:
            found[name] = "rr" in line.split()
    return found


def fill(store: MessageStore, files: int) -> None:
    for _ in range(files * 3):
        append(store, b"x" * 3000)
    dispatch_all(store)


def test_read_ahead_is_switched_for_open_files_and_new_ones(tmp_path: Path) -> None:
    settings = small_settings(tmp_path)
    with MessageStore.open(settings) as store:
        log = store.paths.commit_log
        fill(store, 2)
        assert set(files_without_read_ahead(log).values()) == {False}
        store.apply_settings(replace(settings, read_ahead=False))
        fill(store, 2)
        random = files_without_read_ahead(log)
        assert set(random.values()) == {True}
        assert len(random) > 3
        store.apply_settings(settings)
        assert set(files_without_read_ahead(log).values()) == {False}


def test_a_store_opens_its_log_as_the_setting_says(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path)) as store:
        fill(store, 3)
    with MessageStore.open(small_settings(tmp_path, read_ahead=False)) as store:
        fill(store, 1)
        assert set(files_without_read_ahead(store.paths.commit_log).values()) == {True}
