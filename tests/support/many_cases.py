"""Many small cases in one test: each is tried, and all that fail are named.

pytest takes milliseconds for a test. Where hundreds of cases take microseconds each, they are one test.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
Check = Callable[..., None]


def for_each(
    argument: str, cases: Iterable[Case], *, named: Callable[[Case], str]
) -> Callable[[Check], Check]:
    """Like `pytest.mark.parametrize`, for a test that takes no time."""
    tried = list(cases)
    assert tried, "a test without cases proves nothing"

    def in_one_test(check: Check) -> Check:
        signature = inspect.signature(check)

        @functools.wraps(check)
        def test(**others: Any) -> None:
            failures = []
            for case in tried:
                try:
                    check(**others, **{argument: case})
                except Exception as failure:
                    failure.add_note(f"with {named(case)}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(tried)} cases failed", failures)

        left = [each for name, each in signature.parameters.items() if name != argument]
        assert len(left) < len(signature.parameters), f"{check.__name__} takes no {argument}"
        vars(test)["__signature__"] = signature.replace(parameters=left)
        return test

    return in_one_test


def eight_at_a_time(
    argument: str, cases: Iterable[Case], *, named: Callable[[Case], str]
) -> pytest.MarkDecorator:
    """For a property test with few examples for each of many cases: hypothesis takes longer to begin."""
    every = list(cases)
    shares = [every[first : first + 8] for first in range(0, len(every), 8)]
    return pytest.mark.parametrize(
        argument, shares, ids=lambda share: f"{named(share[0])} to {named(share[-1])}"
    )
