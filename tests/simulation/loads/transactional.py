"""Transactions: committed or rolled back at once, or only when the broker asks."""

from contextlib import suppress
from typing import Any

from tests.simulation.loads.decided import DecidedLoad

from pyromq import Message, PyroError, ReceivedMessage, TransactionState, aio

_GROUP = "transaction-readers"


class TransactionalLoad(DecidedLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self.sender("producer", self._produce())
        self.member("member", lambda: self.consume(_GROUP))

    def _producer(self, **options: Any) -> aio.TransactionProducer:
        """Without retries: each would make a half message of its own."""
        return aio.TransactionProducer(
            "payers",
            self.cluster.name_server_address,
            check=self._check,
            topics=(self.topic,),
            retries=0,
            send_timeout_s=1.5,
            **options,
        )

    async def _produce(self) -> None:
        async with self._producer(**self.options()) as producer:
            while not self.is_over:
                body = self.next_body(self.chance.choice(("commit", "rollback")))
                state = self.chance.choice((_decision(body), TransactionState.UNKNOWN))

                async def work(_: Message, state: TransactionState = state) -> TransactionState:
                    return state

                result = None
                with suppress(PyroError):
                    ended = await producer.send_in_transaction(Message(self.topic, body.encode()), work)
                    result = ended.send_result
                self.decided(body, result)
                await self.pause(has_failed=result is None)
            # Brokers ask it until all is decided.
            await self.cluster.until(lambda: self.is_delivered, 60.0)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        return _decision(message.body.decode())


def _decision(body: str) -> TransactionState:
    return TransactionState.COMMIT if body.startswith("commit") else TransactionState.ROLLBACK
