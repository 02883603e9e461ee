"""Where chance enters: one source, which a simulation sets."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from pyromq import chance
from pyromq.cluster.name_servers import NameServers
from pyromq.remoting.soon import soon_of


@pytest.fixture
def own_chance() -> Iterator[list[int]]:
    """The number of the process, to be changed by the test; chance is seeded."""
    number = [7]
    chance.set_chance(random.Random(1), lambda: number[0])
    yield number
    chance.reset_chance()


def test_a_seed_repeats_everything_that_chance_decides(own_chance: list[int]) -> None:
    def drawn() -> list[object]:
        chance.set_chance(random.Random(5), lambda: 1)
        values = list(range(10))
        chance.shuffle(values)
        return [
            values,
            chance.random(),
            chance.randrange(1000),
            chance.getrandbits(32),
            chance.choice("abcdef"),
            chance.token(4),
            chance.uuid(),
            NameServers([f"n{each}:1" for each in range(9)]).addresses,
        ]

    assert drawn() == drawn()


def test_a_token_has_all_its_digits(own_chance: list[int]) -> None:
    assert {len(chance.token(2)) for _ in range(500)} == {4}


async def test_processes_on_one_loop_do_not_share_the_callbacks_of_a_turn(own_chance: list[int]) -> None:
    loop = asyncio.get_running_loop()
    mine = soon_of(loop)
    assert soon_of(loop) is mine
    own_chance[0] = 8
    assert soon_of(loop) is not mine
