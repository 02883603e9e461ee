"""A topic on Spark, replication as a picture, differing name servers: each says what it could not see."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.console_cluster import ORDERS, Shown, shown_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


def checkpoint(root: Path, batch: int, *, position: int, is_done: bool = True) -> None:
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True, exist_ok=True)
    line = json.dumps({"v": 1, "q": {ORDERS: {"broker-a:0": position, "gone:7": 1}}})
    (root / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line}\n")
    if is_done:
        (root / "commits" / str(batch)).write_text("v1\n{}\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    root = tmp_path_factory.mktemp("lakes")
    checkpoint(root / "lake", 4, position=1)
    checkpoint(root / "lake", 5, position=2, is_done=False)
    named = f"{root / 'lake'}, {root / 'nothing'}"
    async with shown_cluster(tmp_path_factory.mktemp("console"), checkpoints=named) as made:
        yield made


async def data(shown: Shown, path: str) -> Any:
    page = await shown.admin.get(f"/c/default/{path}", accept="application/json")
    assert page.status == 200, page
    return page.json


async def test_a_checkpoint_is_compared_with_the_brokers(shown: Shown) -> None:
    lake, nothing = (await data(shown, f"topics/{ORDERS}/spark"))["queries"]
    assert (lake["committed_batch"], lake["batch"], lake["is_running"]) == (4, 5, True)
    first = next(each for each in lake["queues"] if each["broker"] == "broker-a")
    assert first["unread"] == first["end"] - 1
    gone = next(each for each in lake["queues"] if each["broker"] == "gone")
    assert (gone["end"], gone["unread"], gone["lost"]) == (None, None, None)
    assert lake["unread"] is None
    assert nothing["problem"]


async def test_jobs_are_offered_with_the_topic_filled_in(shown: Shown) -> None:
    commands = (await data(shown, f"topics/{ORDERS}/spark"))["commands"]
    assert commands[0].startswith(f"pyromq pipeline archive lake/ -t {ORDERS} -n 127.0.0.1:")


async def test_a_topic_that_no_query_reads_has_only_unreadable_checkpoints(shown: Shown) -> None:
    queries = (await data(shown, "topics/others/spark"))["queries"]
    assert [bool(each["problem"]) for each in queries] == [True]


async def test_every_broker_group_is_in_the_picture(shown: Shown) -> None:
    groups = (await data(shown, "brokers/replication"))["groups"]
    assert [group["name"] for group in groups] == ["broker-a", "broker-b"]
    assert [member["isMaster"] for group in groups for member in group["members"]] == [True, True]
    page = await shown.admin.get("/c/default/brokers/replication")
    assert page.text.count("<rect ") == 2


async def test_name_servers_are_compared_by_digests(shown: Shown) -> None:
    found = await data(shown, "nameservers/diff")
    assert (found["rows"], found["names_only"], len(found["compared"])) == ([], False, 1)
