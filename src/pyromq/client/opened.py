"""A client in an `async with` block: it starts with the block, and closes at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Opened(ABC):
    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
