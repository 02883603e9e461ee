"""An application of FastStream as a process: what its handlers get if it is killed or stopped."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.task_worker import TaskWorkers

from pyromq.testing import RunningCluster

pytest.importorskip("faststream")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

from pyromq.faststream import RocketBroker  # noqa: E402

_APPLICATION = """
import asyncio
from faststream import FastStream
from note_writing import write
from pyromq.faststream import RocketBroker

broker = RocketBroker({url!r}, invisible_s=5.0)


@broker.subscriber("Notes", group="writers", start_from="first", max_workers=4)
async def note(text: str) -> None:
    pause_s = 3600.0 if text == "stuck" and {is_stuck} else 2.0 if text == "slow" else 0.0
    write({path!r}, f"begun {{text}}")
    await asyncio.sleep(pause_s)
    write({path!r}, text)


asyncio.run(FastStream(broker).run())
"""


def application(place: Path, url: str, *, is_stuck: bool = False) -> TaskWorkers:
    name = "stuck_app" if is_stuck else "app"
    text = _APPLICATION.format(url=url, is_stuck=is_stuck, path=str(place / "notes"))
    return TaskWorkers(place, name, text, [f"{name}.py"])


def publish(url: str, *texts: str) -> None:
    async def run() -> None:
        async with RocketBroker(url, logger=None) as broker:
            for text in texts:
                await broker.publish(text, "Notes")

    asyncio.run(run())


def test_messages_of_a_process_that_dies_are_handled_elsewhere(
    rocketmq: RunningCluster, tmp_path: Path
) -> None:
    url = f"rocketmq://{rocketmq.namesrv}/tests"
    first, second = application(tmp_path, url, is_stuck=True), application(tmp_path, url)
    try:
        publish(url, "stuck")
        dying = first.start("dying")
        first.wait(lambda: "begun stuck" in first.noted())
        first.kill(dying)
        second.start("living")
        second.wait(lambda: "stuck" in second.done())
        assert second.noted().count("begun stuck") == 2
    finally:
        first.stop_all()
        second.stop_all()


def test_a_process_that_is_stopped_finishes_and_repeats_nothing(
    rocketmq: RunningCluster, tmp_path: Path
) -> None:
    url = f"rocketmq://{rocketmq.namesrv}/tests"
    workers = application(tmp_path, url)
    numbers = [str(number) for number in range(50)]
    try:
        publish(url, "slow", *numbers)
        leaving = workers.start("leaving")
        workers.wait(lambda: "begun slow" in workers.noted())
        assert workers.stop(leaving) == 0
        workers.start("staying")
        workers.wait(lambda: len(workers.done()) >= 51)
        assert Counter(workers.done()) == Counter(["slow", *numbers])
    finally:
        workers.stop_all()
