"""Records of task frameworks in a topic, while the cluster is away."""

import asyncio

import pytest

from pyromq.errors import TransportError
from pyromq.tasks.keyed import KeyedTopic
from pyromq.testing.held_ports import held_port


async def test_a_start_that_fails_leaves_nothing_running() -> None:
    with held_port() as port:
        before = asyncio.all_tasks()
        for _ in range(2):
            with pytest.raises(TransportError):
                await KeyedTopic("RESULTS", {"namesrv": f"127.0.0.1:{port}"}).start()
        assert asyncio.all_tasks() == before


def test_a_result_backend_of_celery_that_cannot_connect_leaves_nothing_running() -> None:
    celery = pytest.importorskip("celery")
    from pyromq.client.blocking import LoopThread

    async def running() -> int:
        return len(asyncio.all_tasks())

    with held_port() as port:
        app = celery.Celery("away", backend=f"rocketmq://127.0.0.1:{port}/shop")
        before = LoopThread.shared().run(running)
        for _ in range(2):
            with pytest.raises(TransportError):
                app.backend.get("key")
        assert LoopThread.shared().run(running) == before
