"""What is asked of an object store is counted, whoever asks, and whether it succeeds or not."""

from pathlib import Path

import msgspec
import pytest
from tests.support.log_files import filled
from tests.support.model_objects import ModelObjects

from pyromq.errors import TransportError
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.tier import uploading
from pyromq.tier.counted_objects import PART_BYTES, CountedObjects, Traffic, upload_requests
from pyromq.tier.uploading import UploadTask


def test_every_request_is_counted_with_its_bytes(tmp_path: Path) -> None:
    objects = CountedObjects(ModelObjects())
    objects.create("a", b"12345")
    objects.replace("a", b"123")
    assert objects.read("a", 1, 2) == b"23"
    assert objects.info("a") is not None
    assert [each.name for each in objects.list("")] == ["a"]
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    objects.put_file("b", path)
    objects.remove("a")
    assert objects.traffic == Traffic(writes=3, reads=2, lists=1, removals=1, written_bytes=108, read_bytes=2)
    assert objects.traffic.requests == 7


def test_a_request_that_fails_is_one_too() -> None:
    model = ModelObjects()
    model.fails = lambda operation, name: "before"
    objects = CountedObjects(model)
    with pytest.raises(TransportError):
        objects.read("a")
    assert objects.traffic == Traffic(reads=1)


@pytest.mark.parametrize(
    ("size_bytes", "requests"), [(1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 4), (305 * 1024 * 1024, 22)]
)
def test_the_parts_of_a_large_upload_are_requests(size_bytes: int, requests: int) -> None:
    assert upload_requests(size_bytes) == requests


def test_the_child_process_reports_what_it_asked(tmp_path: Path) -> None:
    model = ModelObjects()
    path = tmp_path / "log"
    path.write_bytes(filled(encode_record(StoredMessage("T", b"body")), 1000))
    task = UploadTask(str(path), 0, 0, str(tmp_path / "segment.tmp"), "", "C", "b")
    answer = uploading._attempt(task, lambda *_, **__: model)
    assert answer.entry is not None
    assert answer.traffic == Traffic(
        writes=1,
        reads=2,
        written_bytes=answer.entry.size_bytes,
        read_bytes=answer.entry.size_bytes - answer.entry.footer_at,
    )
    assert msgspec.json.decode(msgspec.json.encode(answer), type=uploading.UploadAnswer) == answer
    model.fails = lambda operation, name: "before" if operation == "info" else None
    failed = uploading._attempt(task, lambda *_, **__: model)
    assert failed.problem
    assert failed.traffic.writes == 1
