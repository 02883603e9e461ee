"""Cases that share a test are tried one by one, and those that fail are named."""

import pytest
from tests.support.many_cases import for_each


@for_each("number", [2, 3, 4, 5], named=lambda number: f"the number {number}")
def is_even(number: int) -> None:
    assert number % 2 == 0


def test_every_case_that_fails_is_named_with_its_reason() -> None:
    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed") as failed:
        is_even()
    assert [each.__notes__ for each in failed.value.exceptions] == [
        ["with the number 3"],
        ["with the number 5"],
    ]


def test_errors_count_as_failures_do() -> None:
    @for_each("divisor", [0, 1], named=str)
    def divides(divisor: int) -> None:
        assert 1 % divisor == 0

    with pytest.raises(ExceptionGroup, match="1 of 2") as failed:
        divides()
    assert failed.group_contains(ZeroDivisionError)


@pytest.mark.parametrize("base", [10, 100])
@for_each("number", [1, 2], named=str)
def test_all_else_is_as_in_other_tests(number: int, base: int, request: pytest.FixtureRequest) -> None:
    assert base + number > 10
    assert request.node.name == f"test_all_else_is_as_in_other_tests[{base}]"


def test_nothing_to_try_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        for_each("number", [], named=str)
    with pytest.raises(AssertionError, match="takes no number"):
        for_each("number", [1], named=str)(lambda: None)
