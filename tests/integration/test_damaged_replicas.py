"""A broker of a group counts only for bytes that it has checked and would find again, over real sockets."""

from pathlib import Path

from tests.integration.test_controlled_replication import bodies, send
from tests.support.controlled_group import controlled_group
from tests.support.replicas import caught_up, log_of


def flip(directory: Path, body: bytes, bit: int = 0) -> None:
    """Flip a bit in the body of a message, in the log of a broker that is not running."""
    (path,) = (each for each in (directory / "commitlog").iterdir() if body in each.read_bytes())
    with path.open("r+b") as log:
        at = path.read_bytes().index(body)
        log.seek(at)
        log.write(bytes([body[0] ^ 1 << bit]) + body[1:])


async def test_a_replica_with_a_hole_copies_from_there_on_again_and_may_lead_then(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        old, new = [await group.start(each) for each in "ab"]
        await group.settled(2)
        await send(old, range(1000, 1020))
        await caught_up(new, old)
        directory = await group.crash(new)
        store = tmp_path / directory
        (store / "checkpoint").unlink()  # nothing was synced
        flip(store, b"1005")
        new = await group.start(directory)
        assert new.store.recovery.damage
        await group.settled(2)
        await caught_up(new, old)
        assert log_of(new.store) == log_of(old.store)
        await group.crash(old)
        assert await group.settled(1) is new
        assert bodies(new) == list(range(1000, 1020))
