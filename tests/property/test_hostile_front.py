"""Hostile calls of every rpc to a gRPC front under access control, by callers with and without rights."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.guarded_front import guarded_front
from tests.support.guarded_servers import CALLERS


@pytest.mark.parametrize("caller", CALLERS)
def test_hostile_calls_cause_no_more_than_the_caller_may(tmp_path: Path, caller: str) -> None:
    with asyncio.Runner() as runner:
        running = guarded_front(tmp_path)
        front = runner.run(running.__aenter__())

        @settings(max_examples=examples(8))
        @given(st.integers(0, 2**32))
        def check(seed: int) -> None:
            assert runner.run(front.attack(Random(seed), caller)) > 10

        check()
        runner.run(running.__aexit__(None, None, None))
