"""Whoever waits for a cluster asks again after growing pauses, or when there is news."""

import pytest

from pyromq.client.patience import patiently
from pyromq.errors import ConnectFailed


async def test_pauses_grow_until_somebody_answers() -> None:
    pauses: list[float] = []
    told: list[str] = []

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)

    async def ask() -> int:
        if len(pauses) < 7:
            raise ConnectFailed("nobody there")
        return 7

    assert await patiently(ask, 60, lambda problem: told.append(str(problem)), pause) == 7
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert told == ["nobody there"]


async def test_nobody_waits_beyond_the_deadline() -> None:
    async def ask() -> int:
        raise ConnectFailed("nobody there")

    with pytest.raises(ConnectFailed, match="nobody there"):
        await patiently(ask, 0.01)
