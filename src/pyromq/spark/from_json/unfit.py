"""Why a value is not read: it does not fit its type, or only in part."""

from typing import Any


class Unfit(ValueError):
    """A value does not fit."""


class Partly(Unfit):
    """Some of its parts do not fit; `value` has null in their place."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value
