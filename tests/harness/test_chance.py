"""What `make test` tries does not depend on chance, nor on what else runs in the process."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from tests.support.chance import examples
from tests.support.places import ROOT
from tools.fuzzing import command, explore, how_to_repeat

TEST = """
from hypothesis import given, settings, strategies as st
from tests.support.chance import register_profiles, settle_constants
register_profiles()
settings.load_profile({profile!r})
settle_constants()
tried = []

@given(st.lists(st.integers() | st.binary()))
def test(values):
    tried.append(values)

{first}
test()
print(len(tried), tried)
"""


def tried(directory: Path, profile: str, hash_seed: int, first: str = "") -> str:
    """What a property test tries, in a process of its own."""
    program = directory / "program.py"
    program.write_text(TEST.format(profile=profile, first=first))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=directory,
        env={
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "PYTHONHASHSEED": str(hash_seed),
            "PYROMQ_FUZZ_EXAMPLES": "20",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("profile", ["usual", "quick"])
def test_the_same_examples_are_tried_every_time(tmp_path: Path, profile: str) -> None:
    alone = tried(tmp_path, profile, hash_seed=1)
    assert alone.startswith({"usual": "100 ", "quick": "5 "}[profile])
    in_company = "import pyromq.protocol.requests, pyromq.store.message_store, random; random.seed(1)"
    assert tried(tmp_path, profile, 2, first=in_company) == alone


def test_constants_of_the_modules_that_happen_to_be_there_are_tried_on_request_alone() -> None:
    assert bool(len(providers._get_local_constants())) != settings().derandomize


def test_other_examples_are_tried_on_request(tmp_path: Path) -> None:
    assert tried(tmp_path, "fuzz", hash_seed=1) != tried(tmp_path, "fuzz", hash_seed=1)


def test_a_seed_repeats_what_was_tried(tmp_path: Path) -> None:
    first = "from hypothesis import core; core.global_force_seed = 7"
    more = f"{first}; import pyromq.protocol.requests"
    assert tried(tmp_path, "fuzz", 1, first=first) == tried(tmp_path, "fuzz", 2, first=more)


def test_a_test_with_more_examples_than_others_has_more_of_them_in_every_profile() -> None:
    usual = settings().max_examples
    assert examples(200) == 2 * usual
    assert examples(1) >= 1


def test_rounds_have_seeds_of_their_own_until_the_time_is_over() -> None:
    times, seeds = iter([0.0, 30.0, 59.0, 61.0]), []

    def one_round(seed: int) -> int:
        seeds.append(seed)
        return 0

    assert explore(7, 1, one_round, lambda: next(times)) == (0, 9)
    assert seeds == [7, 8, 9]


def test_a_failure_ends_the_rounds_and_can_be_repeated() -> None:
    ended, seed = explore(7, 60, lambda seed: int(seed == 8))
    assert (ended, seed) == (1, 8)
    assert how_to_repeat(seed, 500, ["tests/unit"]) == (
        "make fuzz SEED=8 EXAMPLES=500 MINUTES=0 TESTS='tests/unit'"
    )
    assert "--hypothesis-seed=8" in command(seed, 2, [])


def test_chance_falls_out_the_same_in_every_run(request: pytest.FixtureRequest) -> None:
    expected = random.Random(request.node.nodeid)
    assert [random.random() for _ in range(3)] == [expected.random() for _ in range(3)]
