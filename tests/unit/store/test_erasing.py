"""Messages with a key lose their bytes in the log, and all others stay, whenever the broker is killed."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from tests.support.dying_files import DyingFiles, Killed
from tests.support.erasing import erase, finish_erasing
from tests.support.small_stores import (
    TOPIC,
    append,
    bodies_of,
    dispatch_all,
    interpreted,
    read_queue,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.filesystem import Files
from pyromq.protocol.properties import encode_properties
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore

SECRET = b"somebody's address"
WHO = (TOPIC, "who")
MESSAGES = 100
SECRETS = (3, 57, 99)
OTHERS = [b"message %d" % number for number in range(MESSAGES) if number not in SECRETS]


def open_store(root: Path, files: Files | None = None) -> MessageStore:
    return MessageStore.open(small_settings(root), files=files, clock=ManualClock(), start_flusher=False)


def send(store: MessageStore, body: bytes, keys: str, **properties: str) -> None:
    encoded = encode_properties({"KEYS": keys} | properties).encode()
    assert append(store, body, properties=encoded).is_ok


def fill(store: MessageStore) -> None:
    for number in range(MESSAGES):
        is_secret = number in SECRETS
        send(
            store,
            SECRET + b"!" * 300 if is_secret else b"message %d" % number,
            f"a{number} who" if is_secret else "whose",
        )
    dispatch_all(store)
    store.flushes.flush()


def has_secrets(root: Path) -> bool:
    files = (root / "commitlog").iterdir()
    return any(word in each.read_bytes() for each in files for word in (SECRET, b" who\x02"))


@pytest.mark.parametrize("how", [nullcontext, interpreted], ids=["compiled", "interpreted"])
def test_readers_pass_over_erased_messages_and_get_all_others(
    tmp_path: Path, how: Callable[[], nullcontext[None]]
) -> None:
    with how():
        with open_store(tmp_path) as store:
            fill(store)
            assert store.log.start == 0
            assert store.log.end > store.settings.log_segment_bytes
            assert has_secrets(tmp_path)
            assert len(store.log.query(*WHO, 64)) == len(SECRETS)
            size = store.log.end
            erase(store, WHO, (TOPIC, "nobody"))
            assert not has_secrets(tmp_path)
            assert store.log.end == size
            assert not store.log.query(*WHO, 64)
            assert bodies_of(store) == OTHERS
            assert [each.queue_offset for each in read_queue(store)][-1] == MESSAGES - 2
            assert store.queues.max_offset(TOPIC, 0) == MESSAGES
            assert [each.is_finished for each in store.erasing.all()] == [True, True]
            send(store, b"later", "who")
            dispatch_all(store)
        for is_rebuilt in (False, True):
            if is_rebuilt:
                shutil.rmtree(tmp_path / "consumequeue")
            with open_store(tmp_path) as store:
                assert not store.recovery.damage
                assert bodies_of(store) == [*OTHERS, b"later"]
                assert not finish_erasing(store)
        with OfflineStore(tmp_path) as closed:
            assert not closed.verify().damage


@pytest.mark.parametrize("name", ["UNIQ_KEY", "ORIGIN_MESSAGE_ID"])
def test_the_message_id_that_its_sender_knows_is_a_key_as_well(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path) as store:
        send(store, SECRET, "order", **{name: "7F0000011D6C18B4AAC2017D31F10000"})
        send(store, b"other", "order")
        dispatch_all(store)
        erase(store, (TOPIC, "7F0000011D6C18B4AAC2017D31F10000"))
        assert bodies_of(store) == [b"other"]


@pytest.mark.parametrize("name", ["REAL_TOPIC", "RETRY_TOPIC"])
def test_copies_under_other_topics_go_and_messages_of_other_topics_stay(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path) as store:
        for topic in (TOPIC, "Elsewhere"):
            encoded = encode_properties({"KEYS": "who", name: topic}).encode()
            append(store, topic.encode(), topic="Copies", properties=encoded)
        dispatch_all(store)
        erase(store, WHO)
        assert bodies_of(store, "Copies") == [b"Elsewhere"]


def test_a_record_of_any_size_is_found_and_damage_is_passed_over(tmp_path: Path) -> None:
    large = SECRET * 200_000
    with MessageStore.open(
        small_settings(tmp_path, log_segment_bytes=16 * 1024 * 1024), start_flusher=False
    ) as store:
        for body in (b"first", large, b"second", large):
            send(store, body, "who" if body is large else "whose")
        dispatch_all(store)
        store.flushes.flush()
        path = min((tmp_path / "commitlog").iterdir())
        content = path.read_bytes()
        at = content.index(b"second") - 88
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff" * 40)
        erase(store, WHO)
        assert SECRET not in path.read_bytes()


def test_an_erasure_killed_at_any_file_operation_is_finished_by_the_next_start(tmp_path: Path) -> None:
    pattern = tmp_path / "pattern"
    with open_store(pattern) as store:
        fill(store)

    def erase_and_die(root: Path, dies_at: int, random: Random | None) -> bool:
        shutil.copytree(pattern, root)
        files = DyingFiles(root)
        store = open_store(root, files)
        files.operations, files.dies_at = 0, dies_at
        try:
            erase(store, WHO)
            is_killed = False
        except Killed:
            is_killed = True
        files.dies_at = 1 << 62
        store.abandon()
        if random is not None:
            files.crash(random)
        return is_killed

    asked = set()
    for seed in range(3):
        for dies_at in range(100):
            root = tmp_path / f"{seed}-{dies_at}"
            # The first time the process alone dies, then the power goes as well.
            if not erase_and_die(root, dies_at, Random(seed) if seed else None):
                break
            with open_store(root) as store:
                is_asked = bool(store.erasing.unfinished()) or not has_secrets(root)
                asked.add(is_asked)
                finish_erasing(store)
                assert has_secrets(root) != is_asked
                if is_asked:
                    assert bodies_of(store) == OTHERS
            shutil.rmtree(root)
        assert 3 < dies_at < 99
    assert asked == {False, True}
