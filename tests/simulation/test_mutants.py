"""Planted bugs: each patch still fits the source. Whether it is found is what `make mutants` says."""

import os

from tests.simulation.mutants import MUTANTS, Mutant, plant
from tests.support.many_cases import for_each


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
