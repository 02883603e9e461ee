"""The example of deploy/ha: messages get through it, strangers do not, and it is set up as its files say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ha_example import ha_example

pytestmark = pytest.mark.timeout(300)
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ha_example(tmp_path_factory.mktemp("ha")) as running:
        yield running


def test_a_user_sends_and_reads(example: Any) -> None:
    lines = "".join(f"{number}\n" for number in range(20))
    example.run("pyromq", "produce", "orders", user="shop", given=lines)
    read = example.run("pyromq", "consume", "orders", "-g", "billing", user="shop")
    assert sorted(read.split()) == sorted(lines.split())


def refusal(topic: str, *options: str) -> str:
    command = [str(PROGRAMS / "pyromq"), "produce", topic, *options]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, check=False)
    assert done.returncode
    return done.stderr


def test_strangers_and_users_without_the_right_are_refused(example: Any) -> None:
    assert "User:shop" in refusal("payments", *example.options("shop"))
    everybody = ["-n", example.name_servers]
    assert refusal("orders", *everybody)
    assert refusal("orders", *everybody, "--tls-trust", str(example.authority))


def test_three_brokers_are_in_sync_and_users_are_everywhere(example: Any) -> None:
    shown = example.run("mqadmin", "getSyncStateSet", "-a", example.address("controller-0"), "-b", "broker-a")
    assert shown.count("true  ") == 3, shown
    for name in ("namesrv-0", "namesrv-1", "controller-0", "broker-0", "broker-1", "broker-2"):
        assert "shop" in example.run("mqadmin", "listUser", "-b", example.address(name))
