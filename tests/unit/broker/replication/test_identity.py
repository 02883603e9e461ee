"""The id of a broker survives every crash, and a store is not taken for that of another broker."""

from pathlib import Path
from random import Random

import pytest
from tests.support.faulty_files import FaultyFiles

from pyromq.broker.replication.identity import Claim, IdentityFiles, Incarnation
from pyromq.errors import ConfigError, StoreError
from pyromq.filesystem import Files


def files(root: Path, cluster: str = "c", name: str = "b") -> IdentityFiles:
    return IdentityFiles(Files(), root / "brokerIdentity", cluster, name)


def test_a_broker_without_files_has_no_id(tmp_path: Path) -> None:
    assert files(tmp_path).read() is None
    assert files(tmp_path).read_claim() is None


def test_the_files_are_those_of_rocketmq(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("c#b#7")
    (tmp_path / "brokerIdentity-temp").write_text("c#b#8#127.0.0.1:10911;1700000000000")
    assert files(tmp_path).read() == 7
    assert files(tmp_path).read_claim() == Claim(8, "127.0.0.1:10911;1700000000000")


def test_a_claim_is_kept_until_it_has_succeeded(tmp_path: Path) -> None:
    files(tmp_path).write_claim(Claim(3, "code"))
    assert (tmp_path / "brokerIdentity-temp").read_text() == "c#b#3#code"
    assert files(tmp_path).read_claim() == Claim(3, "code")
    files(tmp_path).write(3)
    assert files(tmp_path).read() == 3
    assert files(tmp_path).read_claim() is None


def test_the_last_start_is_kept(tmp_path: Path) -> None:
    assert files(tmp_path).read_incarnation() is None
    for last in (Incarnation("7", is_sync=True), Incarnation("9", is_sync=False)):
        files(tmp_path).write_incarnation(last)
        assert files(tmp_path).read_incarnation() == last


@pytest.mark.parametrize(
    ("cluster", "name", "key"), [("x", "b", "brokerClusterName"), ("c", "x", "brokerName")]
)
def test_the_store_of_another_broker_is_refused(tmp_path: Path, cluster: str, name: str, key: str) -> None:
    files(tmp_path).write(3)
    with pytest.raises(ConfigError, match=f"{key}=x: expected .*this store belongs to that broker"):
        files(tmp_path, cluster, name).read()


def test_a_damaged_identity_is_told(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("c#b")
    with pytest.raises(StoreError, match="not the identity of a broker"):
        files(tmp_path).read()


def test_an_identity_survives_the_loss_of_power(tmp_path: Path) -> None:
    faulty = FaultyFiles(tmp_path)
    IdentityFiles(faulty, tmp_path / "brokerIdentity", "c", "b").write(3)
    faulty.crash(Random(0))
    assert files(tmp_path).read() == 3
