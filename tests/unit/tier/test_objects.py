"""What every object store has to do: a directory, and S3 whose requests fail."""

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.support.chance import examples
from tests.support.dying_files import DyingFiles, Killed
from tests.support.object_store import CONFLICT, FAULTS, FaultyStore, faulty_store, lead_to

from pyromq.errors import ConfigError, TransportError
from pyromq.tier.directory_objects import DirectoryObjects
from pyromq.tier.objects import ObjectExists, ObjectMissing, Objects, create_settled
from pyromq.tier.opening import open_objects
from pyromq.tier.stored_objects import StoredObjects

WRITERS = 6


@pytest.fixture(scope="module")
def running() -> Iterator[FaultyStore]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with faulty_store() as store:
        yield store


@pytest.fixture
def s3(running: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    lead_to(running.url(), monkeypatch)
    running.fail_no_more()
    return running


@pytest.fixture(params=["directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return open_objects(str(tmp_path / "tier"), "C", "b")
    store = request.getfixturevalue("s3")
    return open_objects(f"s3://{store.new_bucket()}/some/where", "C", "b")


def test_an_object_is_created_once_and_read_in_ranges(objects: Objects) -> None:
    objects.create("manifest/1", b"0123456789")
    with pytest.raises(ObjectExists):
        objects.create("manifest/1", b"another")
    assert objects.read("manifest/1") == b"0123456789"
    assert objects.read("manifest/1", 3) == b"3456789"
    assert objects.read("manifest/1", 3, 4) == b"3456"
    info = objects.info("manifest/1")
    assert info is not None
    assert info.size_bytes == 10
    objects.replace("manifest/hint", b"1")
    objects.replace("manifest/hint", b"22")
    assert objects.read("manifest/hint") == b"22"


def test_what_is_missing_is_said_to_be_missing(objects: Objects) -> None:
    assert objects.info("segments/x") is None
    assert objects.list("segments/") == []
    with pytest.raises(ObjectMissing):
        objects.read("segments/x")
    with pytest.raises(ObjectMissing):
        objects.read("segments/x", 3, 4)
    objects.remove("segments/x")


def test_a_listing_has_the_names_below_a_prefix_and_no_neighbours(objects: Objects, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * 300_000)
    objects.put_file("segments/1", big)
    objects.put_file("segments/1", big)
    objects.create("segments2", b"")
    objects.create("manifest/1", b"")
    assert [(each.name, each.size_bytes) for each in objects.list("segments/")] == [("segments/1", 300_000)]
    objects.remove("segments/1")
    assert objects.list("segments/") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_an_object_is_created_once_whatever_happens_to_its_request(s3: FaultyStore, fault: str) -> None:
    objects = open_objects(f"s3://{s3.new_bucket()}/some/where", "C", "b")
    s3.fail_once("PUT", "/7", fault)
    create_settled(objects, "manifest/7", b"mine")
    assert s3.failed() == 1
    assert objects.read("manifest/7") == b"mine"
    with pytest.raises(ObjectExists):
        create_settled(objects, "manifest/7", b"another's")
    if fault != CONFLICT:
        s3.fail_once("GET", "/7", fault)
        assert objects.read("manifest/7", 0, 2) == b"mi"


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_one_of_several_writers_creates_an_object(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path)
    if kind == "s3":
        store = request.getfixturevalue("s3")
        place = f"s3://{store.new_bucket()}/a"
        store.fail_sometimes(5, 0.3)
    for round_ in range(examples(3)):
        begin, won = threading.Barrier(WRITERS), list[bytes]()

        def write(number: int, name: str, begin: threading.Barrier, won: list[bytes]) -> None:
            objects, content = open_objects(place, "C", "b"), b"%d" % number * 100
            begin.wait(60)
            while True:
                try:
                    create_settled(objects, name, content)
                except ObjectExists:
                    return
                except TransportError:
                    continue
                won.append(content)
                return

        threads = [
            threading.Thread(target=write, args=(number, f"manifest/{round_}", begin, won))
            for number in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert len(won) == 1
        if kind == "s3":
            store.fail_no_more()
        assert open_objects(place, "C", "b").read(f"manifest/{round_}") == won[0]


def test_a_directory_killed_at_any_step_has_an_object_whole_or_not_at_all(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"y" * 10_000)
    died = 0
    for step in range(1, 100):
        directory = tmp_path / str(step)
        directory.mkdir()
        files = DyingFiles(directory)
        files.dies_at = step
        created: list[str] = []
        try:
            objects = DirectoryObjects(directory / "tier", files)
            objects.create("manifest/1", b"x" * 2000)
            created.append("manifest/1")
            objects.put_file("segments/1", big)
            created.append("segments/1")
        except Killed:
            died += 1
        files.crash(Random(step))
        files = DyingFiles(directory, files.disk)
        after = DirectoryObjects(directory / "tier", files)
        for name, content in (("manifest/1", b"x" * 2000), ("segments/1", big.read_bytes())):
            if name in created or after.info(name) is not None:
                assert after.read(name) == content
            else:
                create_settled(after, name, content)
                files.crash(Random(step))
                files = DyingFiles(directory, files.disk)
                assert DirectoryObjects(directory / "tier", files).read(name) == content
        if len(created) == 2:
            break
    assert died > 10


@pytest.mark.parametrize("place", ["ftp://host/a", "file:///tmp/a", "s3://"])
def test_a_place_that_is_no_store_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="tieredStoreFilePath"):
        open_objects(place, "C", "b")


def test_names_of_brokers_lead_nowhere_else(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path), "../up", "..")
    objects.create("format", b"")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["%2E%2E", "..%2Fup", "format"]


def test_the_text_of_an_object_store_has_no_key(s3: FaultyStore) -> None:
    objects = open_objects("s3://bucket/a", "C", "b")
    assert isinstance(objects, StoredObjects)
    assert "secret" not in repr(objects)
    assert objects.place == "s3://bucket/a/C/b"
