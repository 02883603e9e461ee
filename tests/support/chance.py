"""How much chance there is in a run of the tests: none, unless someone asks for it.

`make test` tries the same examples every time, `make quick` few of them; `make fuzz` looks for new ones.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

_USUAL_EXAMPLES = 100
"""So many has a property test that says nothing else."""


def register_profiles() -> None:
    patient = settings(
        database=None,  # what failed yesterday is kept as an `@example`, where all can see it
        deadline=None,  # how long an example takes says how busy the machine is
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    many = int(os.environ.get("PYROMQ_FUZZ_EXAMPLES", 10 * _USUAL_EXAMPLES))
    settings.register_profile("usual", patient, max_examples=_USUAL_EXAMPLES, derandomize=True)
    settings.register_profile("quick", patient, max_examples=_USUAL_EXAMPLES // 20, derandomize=True)
    settings.register_profile("fuzz", patient, max_examples=many)
    settings.load_profile("usual")


def examples(usual: int) -> int:
    """How many examples a test gets in this run that usually has more or fewer than others."""
    return max(1, usual * settings().max_examples // _USUAL_EXAMPLES)


def settle_constants() -> None:
    """Let examples follow from their test and its seed alone.

    Call it when all modules are imported, and before hypothesis hears that the tests are collected.
    Hypothesis likes to try the constants of all modules of ours that are imported. Which ones those are
    depends on the tests that ran before, and on the worker. Examples that are the same every time do without.
    """
    assert hasattr(providers, "_get_local_constants"), "hypothesis keeps its constants elsewhere now"
    constants = providers._local_constants if settings().derandomize else providers._get_local_constants()
    vars(providers)["_get_local_constants"] = lambda: constants
