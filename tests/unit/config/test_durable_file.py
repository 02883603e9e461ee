from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyromq.config.durable_file import DurableFile

ROUNDS = 50


def test_servers_that_share_a_file_write_it_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"

    def save(name: bytes) -> None:
        for _ in range(ROUNDS):
            DurableFile(path).save(name * 5000)

    with ThreadPoolExecutor(2) as servers:
        for done in [servers.submit(save, name) for name in (b"a", b"b")]:
            done.result()
    assert path.read_bytes() in (b"a" * 5000, b"b" * 5000)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]
