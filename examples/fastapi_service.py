"""A web service that sends and consumes: `python examples/fastapi_service.py [name server] [port]`.

POST /orders sends an order; a handler in the same process bills it, exactly once, and GET /orders/{id} shows
the bill. Needs `pip install fastapi uvicorn`. uvicorn handles SIGTERM and Ctrl-C: it leaves the lifespan,
which lets running handlers finish and leaves the group.

Prints uvicorn's log on stderr.
"""

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pyromq.aio import Message, Producer, PushConsumer, readiness, typed


class Order(BaseModel):
    id: str
    price: float


def service(namesrv: str) -> FastAPI:
    producer = Producer("web-orders", namesrv=namesrv)
    consumer = PushConsumer("web-billing", namesrv=namesrv, start_from="first", stop_grace_s=10)
    bills = sqlite3.connect(":memory:")
    bills.execute("CREATE TABLE bills (order_id TEXT PRIMARY KEY, price REAL)")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Clients belong to the loop on which they start: this one, uvicorn's.
        with closing(bills):
            async with producer, consumer:
                yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/ready", readiness(producer, consumer))

    @app.post("/orders", status_code=202)
    async def order(order: Order) -> dict[str, str]:
        result = await producer.send(Message.of("WebOrders", order, keys=[order.id]))
        return {"message_id": result.message_id}

    @app.get("/orders/{order_id}")
    async def bill_of(order_id: str) -> dict[str, str | float]:
        found = bills.execute("SELECT price FROM bills WHERE order_id = ?", (order_id,)).fetchone()
        if found is None:
            raise HTTPException(404, "not billed yet")
        return {"id": order_id, "billed": found[0]}

    @app.get("/bills")
    async def count() -> int:
        (number,) = bills.execute("SELECT count(*) FROM bills").fetchone()
        return int(number)

    @consumer.on("WebOrders")
    @typed(Order)
    async def bill(order: Order) -> None:
        # A message may come twice, and so may an order that the customer sends again: the key decides.
        # Writing the bill and knowing that it was written are one transaction.
        with bills:
            bills.execute("INSERT OR IGNORE INTO bills VALUES (?, ?)", (order.id, order.price))

    return app


def main(namesrv: str = "127.0.0.1:9876", port: str = "8000") -> None:
    uvicorn.run(service(namesrv), host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
