"""What `make test` tries does not depend on chance, nor on what else runs in the process."""

import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from tests.support.chance import examples
from tests.support.places import ROOT
from tools.fuzzing import command, how_to_repeat
from tools.rounds import Round, Rounds

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


def rounds(minutes: float, seed: int | None = 7) -> Rounds:
    return Rounds("game", Namespace(minutes=minutes, seed=seed), lambda seed: f"play SEED={seed}")


def test_rounds_have_seeds_of_their_own_until_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    times, seeds = iter([0.0, 30.0, 59.0, 61.0]), []

    def one_round(seed: int) -> int:
        seeds.append(seed)
        return 0

    played = rounds(minutes=1)
    played.run(one_round, now_s=lambda: next(times))
    assert seeds == [7, 8, 9]
    assert played.report("all is well") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "game: this round can be repeated with play SEED=7"
    assert said[-1] == "game: 3 rounds in 1.0 minutes, seeds 7 to 9: all is well"


def test_rounds_end_when_it_is_enough() -> None:
    played = rounds(minutes=60)
    played.run(lambda seed: 0, is_enough=lambda: played.seed == 8)
    assert (played.seed, played.ended) == (8, 0)


def test_the_first_seed_is_chance_if_none_is_given() -> None:
    assert len({rounds(1, seed=None).first_seed for _ in range(5)}) > 1


def _fails(seed: int) -> int:
    return int(seed == 8)


def _asserts(seed: int) -> int:
    assert seed != 8, "a message was lost"
    return 0


@pytest.mark.parametrize("one_round", [_fails, _asserts])
def test_a_failure_ends_the_rounds_and_can_be_repeated(
    one_round: Round, capsys: pytest.CaptureFixture[str]
) -> None:
    played = rounds(minutes=60)
    played.run(one_round)
    assert played.seed == 8
    assert played.report("one failed") == 1
    said = capsys.readouterr().out
    assert ("a message was lost" in said) == (one_round is _asserts)
    assert said.endswith("game: FAILED. To see it again:\nplay SEED=8\n")


def test_a_round_of_examples_can_be_repeated() -> None:
    assert how_to_repeat(8, 500, ["tests/unit"]) == (
        "make fuzz SEED=8 EXAMPLES=500 MINUTES=0 TESTS='tests/unit'"
    )
    assert "--hypothesis-seed=8" in command(8, 2, [])


def test_chance_falls_out_the_same_in_every_run(request: pytest.FixtureRequest) -> None:
    expected = random.Random(request.node.nodeid)
    assert [random.random() for _ in range(3)] == [expected.random() for _ in range(3)]
