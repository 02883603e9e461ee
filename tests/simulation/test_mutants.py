"""Planted bugs: each patch still fits the source, and some are found; `make mutants` looks for all of them.

A simulation that has become blind finds nothing: its fixed seeds would still pass.
"""

import os

import pytest
from tests.simulation import mutants
from tests.simulation.mutants import MUTANTS, Mutant, plant, search
from tests.support.many_cases import for_each

SOON = ("a", "b", "h", "u", "x", "y", "aa", "dd", "1", "8", "11", "12")
"""They take few seconds, almost every seed shows them, and different rules notice them. The compiled core has
none of these lines."""


@for_each("mutant", MUTANTS, named=lambda mutant: mutant.name)
def test_every_planted_bug_fits_the_source(mutant: Mutant) -> None:
    child = os.fork()
    if not child:
        try:
            plant(mutant)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_every_planted_bug_has_its_own_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("name", SOON)
def test_a_planted_bug_is_found(name: str) -> None:
    assert search(name, seeds=3).broken, f"make mutants MUTANTS={name}"


def test_a_patch_that_does_not_fit_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    misfit = MUTANTS[0]._replace(name="misfit", old="no line of ours")
    monkeypatch.setattr(mutants, "MUTANTS", (misfit,))
    with pytest.raises(RuntimeError, match="its patch does not fit"):
        search("misfit", seeds=1)
