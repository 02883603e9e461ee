"""How a client is: what it knows itself, and whether its brokers answer now.

A client is well if it can do its work: each broker that it uses answers, each topic that it reads has a
route, and no handler is lost. A broker that left the routes is not used any more: that is not a problem.
"""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from pyromq.client.session import Session
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol.names import AUTO_CREATE_TOPIC

DEFAULT_TIMEOUT_S = 1.0
NOT_RUNNING = "it is not running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of `health`; `problems` describes in words what is wrong."""

    group: str
    problems: tuple[str, ...] = ()
    brokers: int = 0
    """The number of brokers that the client knows."""
    lost_brokers: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.is_ok, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHealth(Health):
    queues: int = 0
    last_pull_s: float | None = None
    """The number of seconds since a broker last answered a pull; None before the first."""
    lag: int | None = None
    """The number of messages of its queues that are not done; None if brokers divide the messages."""
    lost_handlers: int = 0
    """See `handler_timeout_s`."""


async def asked(session: Session, timeout_s: float) -> tuple[dict[str, PyroError], list[str]]:
    """The brokers that do not serve us now, each with the reason; and what else is wrong."""
    if not session.routes.brokers:
        try:
            async with asyncio.timeout(timeout_s):
                await session.routes.get(AUTO_CREATE_TOPIC)
        except (TransportError, TimeoutError) as problem:
            return {}, [f"no name server of {session.name_servers} answers: {problem}"]
        except PyroError:
            pass  # it has answered
    lost = await session.silent_brokers(timeout_s)
    return lost, [f"the broker {name} {_said(reason)}" for name, reason in sorted(lost.items())]


def _said(reason: PyroError) -> str:
    return f"{'refuses this client' if isinstance(reason, Refused) else 'does not answer'}: {reason}"


async def health_of(session: Session | None, group: str, timeout_s: float) -> Health:
    """Of a client that knows nothing else."""
    if session is None:
        return Health(group=group, problems=(NOT_RUNNING,))
    lost, problems = await asked(session, timeout_s)
    return Health(
        group=group,
        problems=tuple(problems),
        brokers=len(session.routes.brokers),
        lost_brokers=tuple(sorted(lost)),
    )
