"""Settings that may change while a server runs; `now` has the newest values."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from pyromq.config.settings import Settings

S = TypeVar("S", bound=Settings)


class LiveSettings(Generic[S]):
    def __init__(self, settings: S) -> None:
        self.now = settings
        self._listeners: list[Callable[[S], None]] = []

    def __repr__(self) -> str:
        return f"<LiveSettings {self.now!r}>"

    def on_change(self, listener: Callable[[S], None]) -> None:
        """Tell the listener the settings now and whenever they change."""
        self._listeners.append(listener)
        listener(self.now)

    def update(self, changes: Mapping[str, str]) -> None:
        """Take over changed values; a bad one raises ConfigError and changes nothing."""
        self.replace(self.now.updated(changes))

    def replace(self, settings: S) -> None:
        self.now = settings
        for listener in self._listeners:
            listener(settings)
