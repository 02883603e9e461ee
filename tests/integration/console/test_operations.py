"""Everything the console changes, in front of a real cluster: previewed, done, audited, undone."""

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
import pytest_asyncio
from tests.support.console_browser import JSON
from tests.support.console_cluster import GROUP, LETTERS, ORDERS, QUEUES, Shown, shown_cluster

from pyromq.admin import browsing, groups, offsets, topics
from pyromq.admin.failures import NotFound
from pyromq.protocol.names import retry_topic
from pyromq.protocol.properties import RETRY_TOPIC

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    async with shown_cluster(tmp_path_factory.mktemp("console")) as made:
        yield made


async def offsets_of(shown: Shown) -> dict[str, int]:
    stats = await offsets.lag(shown.cluster, GROUP)
    return {str(q): p.consumer_offset for q, p in stats.offset_table.items() if q.topic == ORDERS}


async def test_a_topic_is_previewed_made_changed_and_deleted(shown: Shown) -> None:
    preview = await shown.do("topics.put", "preview", topic="Fresh", queues=3, message_type="FIFO")
    assert preview.status == 200
    assert "mqadmin updateTopic -n" in preview.text
    with pytest.raises(NotFound):
        await shown.cluster.route("Fresh")
    done = await shown.do("topics.put", accept=JSON, topic="Fresh", queues=3, message_type="FIFO")
    assert (done.status, len(done.json["done"]["rows"])) == (200, 2)
    (address, *_) = [member.address for member in await shown.cluster.masters()]
    config = await topics.config(shown.cluster, address, "Fresh")
    assert (config.write_queue_nums, config.attributes) == (3, {"message.type": "FIFO"})

    wrong = await shown.do("topics.delete", topic="Fresh", confirm="Fres")
    assert wrong.status == 409
    assert (await topics.config(shown.cluster, address, "Fresh")).topic_name == "Fresh"
    right = await shown.do("topics.delete", topic="Fresh", confirm="Fresh")
    assert right.status == 200
    with pytest.raises(NotFound):
        await shown.cluster.route("Fresh")


async def test_many_topics_are_deleted_after_a_dry_run(shown: Shown) -> None:
    for name in ("Old1", "Old2"):
        await shown.do("topics.put", topic=name)
    preview = await shown.do("topics.delete_many", "preview", topics="Old1\nOld2")
    assert "Type 2 to confirm" in preview.text
    done = await shown.do("topics.delete_many", accept=JSON, topics="Old1\nOld2\nNeverWas", confirm="3")
    assert done.status == 404
    assert (await shown.cluster.route("Old1")).queue_datas
    await shown.do("topics.delete_many", topics="Old1\nOld2", confirm="2")
    with pytest.raises(NotFound):
        await shown.cluster.route("Old1")


async def test_a_group_is_made_changed_and_deleted(shown: Shown) -> None:
    done = await shown.do("groups.put", group="fresh", max_retries=3, boxes="may_consume may_broadcast")
    assert done.status == 200
    (_, config), *_ = await groups.configs_of(shown.cluster, "fresh")
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    assert (await shown.do("groups.delete", group="fresh", confirm="fresh")).status == 200
    with pytest.raises(NotFound):
        await groups.configs_of(shown.cluster, "fresh")


async def test_a_form_to_change_something_shows_it_as_it_is(shown: Shown) -> None:
    (address, *_) = [member.address for member in await shown.cluster.masters()]
    topic: dict[str, Any] = {
        "topic": "Special",
        "queues": 3,
        "read_queues": 5,
        "permission": "r",
        "ordered": "true",
        "quota_send_messages": 70,
    }
    assert (await shown.do("topics.put", **topic)).status == 200
    form = (await shown.admin.get_json(f"/c/default/do/topics.put?topic=Special&at={address}")).json
    fields = {each["name"]: each["value"] for each in form["fields"]}
    assert fields | {"topic": "Special", "queues": "3", "read_queues": "5", "permission": "r"} == fields
    assert fields["ordered"] is True
    assert (fields["quota_send_messages"], fields["quota_read_bytes"]) == ("70", "0")
    config = await topics.config(shown.cluster, address, "Special")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (5, 3, 4)
    assert config.attributes == {"quota.send.messages": "70"}
    preview = await shown.do("topics.put", "preview", **topic)
    assert "-a +quota.send.messages=70" in preview.text
    await shown.do("topics.put", **topic | {"quota_send_messages": 0})
    config = await topics.config(shown.cluster, address, "Special")
    assert config.attributes == {"quota.send.messages": "0"}

    boxes = "may_consume may_broadcast ordered"
    await shown.do(
        "groups.put", group="special", max_retries=0, retry_queues=2, boxes=boxes, quota_read_bytes=9
    )
    form = (await shown.admin.get_json("/c/default/do/groups.put?group=special")).json
    fields = {each["name"]: each["value"] for each in form["fields"]}
    assert (fields["max_retries"], fields["retry_queues"]) == ("0", "2")
    assert fields["quota_read_bytes"] == "9"
    (_, settings), *_ = await groups.configs_of(shown.cluster, "special")
    assert settings.attributes == {"quota.read.bytes": "9"}
    assert (fields["may_consume"], fields["may_broadcast"], fields["ordered"]) == (False, False, False)

    wished = (await shown.admin.get_json("/c/default/do/groups.put?group=special&max_retries=7")).json
    assert {each["name"]: each["value"] for each in wished["fields"]}["max_retries"] == "7"


async def test_a_group_is_deleted_in_the_cluster_that_is_named(shown: Shown) -> None:
    await shown.do("groups.put", group="stays")
    gone = await shown.do("groups.delete", group="stays", in_cluster="other", confirm="stays")
    assert gone.status == 404
    assert len(await groups.configs_of(shown.cluster, "stays")) == 2


async def test_a_field_that_makes_no_sense_is_named_as_on_the_form(shown: Shown) -> None:
    async def error(operation: str, **fields: Any) -> str:
        wrong = await shown.do(operation, accept=JSON, **fields)
        assert wrong.status == 400
        return str(wrong.json["error"])

    assert (
        await error("topics.put", topic="T", queues="many")
        == "Queues per broker: many is not valid. Expected a whole number."
    )
    assert await error("topics.put") == "Topic is required."
    assert "Expected one of rw, r, w." in await error("topics.put", topic="T", permission="x")
    assert "Expected true or false." in await error("topics.put", topic="T", ordered="maybe")
    for few in (0, -1):
        assert "1 or more dead letters" in await error("dlq.resend", group=GROUP, newest=few)


async def test_what_a_broker_refuses_is_no_failure_of_the_cluster(shown: Shown) -> None:
    empty = await shown.do("messages.send", accept=JSON, topic=ORDERS)
    assert (empty.status, empty.json["hint"]) == (400, "")
    unknown = await shown.do("offsets.reset", accept=JSON, group="nope", topic=ORDERS, to="end")
    assert (unknown.status, unknown.json["hint"]) == (404, "")


async def test_what_is_tried_again_has_the_fields_that_were_given(shown: Shown) -> None:
    done = await shown.do("topics.put", accept=JSON, topic="no good name", queues=3)
    again = done.json["done"]["again"]
    assert (again["topic"], again["queues"], "read_queues" in again) == ("no good name", "3", False)


async def test_a_reset_does_what_its_preview_says_and_can_be_undone(shown: Shown) -> None:
    before = await offsets_of(shown)
    fields = {"group": GROUP, "topic": ORDERS, "to": "end"}
    preview = (await shown.do("offsets.reset", "preview", JSON, **fields)).json
    assert len(preview["plan"]["rows"]) == QUEUES * 2
    assert preview["line"].startswith("mqadmin skipAccumulatedMessage")
    assert await offsets_of(shown) == before
    done = (await shown.do("offsets.reset", "apply", JSON, **fields)).json
    assert done["done"]["rows"] == preview["plan"]["rows"]
    after = await offsets_of(shown)
    wanted = {
        f"{ORDERS}@{row['broker']}:{row['queue']}": row["offset_wanted"] for row in done["done"]["rows"]
    }
    assert after == wanted

    page = await shown.admin.get(f"/c/default/groups/{GROUP}/offsets")
    assert done["entry"] in page.text
    undone = await shown.do("offsets.undo", group=GROUP, id=done["entry"])
    assert undone.status == 200
    now = await offsets_of(shown)
    assert {queue: now[queue] for queue in before} == before


@pytest.mark.parametrize(
    "fields", [{"to": "time", "time": "2000-01-01"}, {"to": "start"}, {"to": "offset", "offset": 0}]
)
async def test_a_reset_goes_to_a_time_the_start_or_an_offset(shown: Shown, fields: dict[str, Any]) -> None:
    await shown.do("offsets.reset", group=GROUP, topic=ORDERS, to="end")
    done = await shown.do("offsets.reset", accept=JSON, group=GROUP, topic=ORDERS, **fields)
    assert done.status == 200
    assert set((await offsets_of(shown)).values()) == {0}


async def test_one_queue_is_reset_alone(shown: Shown) -> None:
    await shown.do("offsets.reset", group=GROUP, topic=ORDERS, to="start")
    fields: dict[str, Any] = {"broker": "broker-a", "queue": 1, "to": "offset", "offset": 2}
    done = await shown.do("offsets.reset", accept=JSON, group=GROUP, topic=ORDERS, **fields)
    assert "-b broker-a -q 1 -o 2" in done.json["line"]
    moved = {queue for queue, offset in (await offsets_of(shown)).items() if offset == 2}
    assert moved == {f"{ORDERS}@broker-a:1"}


async def test_the_reset_of_a_row_is_that_of_its_queue_alone(shown: Shown) -> None:
    await shown.do("offsets.reset", group=GROUP, topic=ORDERS, to="start")
    page = await shown.admin.get(f"/c/default/groups/{GROUP}/queues?topic={ORDERS}")
    links = re.findall(r"do/offsets\.reset\?([^\"]+)", unescape(page.text))
    named = [dict(parse_qsl(link)) for link in links]
    assert {(each["broker"], each["queue"], each["offset"]) for each in named} == {
        (broker, str(queue), "0") for broker in ("broker-a", "broker-b") for queue in range(QUEUES)
    }


async def test_an_undo_needs_its_entry(shown: Shown) -> None:
    assert (await shown.do("offsets.undo", group=GROUP, id="nope")).status == 404


async def test_offsets_are_cloned(shown: Shown) -> None:
    await shown.do("offsets.reset", group=GROUP, topic=ORDERS, to="end")
    await shown.do("groups.put", group="copy")
    done = await shown.do("offsets.clone", source=GROUP, group="copy", topic=ORDERS)
    assert done.status == 200
    stats = await offsets.lag(shown.cluster, "copy")
    copied = {str(q): p.consumer_offset for q, p in stats.offset_table.items() if q.topic == ORDERS}
    assert copied == await offsets_of(shown)


async def test_a_message_is_sent_with_everything_and_sent_again(shown: Shown) -> None:
    fields = {"topic": ORDERS, "body": "hi", "tags": "t", "keys": "a b", "properties": "x=1\ny=2"}
    done = await shown.do("messages.send", accept=JSON, **fields)
    (row,) = done.json["done"]["rows"]
    path = f"/c/default/topics/{ORDERS}/messages/{row['message_id']}"
    data = (await shown.admin.get_json(path)).json
    assert {"x": "1", "y": "2", "TAGS": "t", "KEYS": "a b"}.items() <= data["properties"].items()
    again = await shown.do("messages.again", topic=ORDERS, id=data["offset_id"])
    assert again.status == 200
    assert (await shown.do("messages.send", topic=ORDERS, properties="nonsense")).status == 400


async def test_lines_of_a_body_end_as_they_were_typed(shown: Shown) -> None:
    done = await shown.do("messages.send", accept=JSON, topic=ORDERS, body="one\r\ntwo\r\n")
    (row,) = done.json["done"]["rows"]
    data = await shown.admin.get_json(f"/c/default/topics/{ORDERS}/messages/{row['message_id']}")
    assert data.json["body"]["text"] == "one\ntwo\n"


@pytest.mark.parametrize(("to", "topic"), [("topic", ORDERS), ("group", retry_topic(GROUP))])
async def test_dead_letters_are_sent_again(shown: Shown, to: str, topic: str) -> None:
    done = await shown.do("dlq.resend", accept=JSON, group=GROUP, to=to, newest=LETTERS)
    assert len(done.json["done"]["rows"]) == LETTERS
    wanted = browsing.Wanted(limits=browsing.Limits(rows=LETTERS))
    look = await browsing.look(shown.cluster, topic, wanted)
    assert {place.message.body for place in look.found} == {b"=dead 0", b"=dead 1", b"=dead 2"}
    if to == "group":
        assert {place.message.get(RETRY_TOPIC) for place in look.found} == {ORDERS}


async def test_a_setting_of_a_broker_is_changed_and_its_former_value_is_audited(shown: Shown) -> None:
    (address, *_) = [member.address for member in await shown.cluster.masters()]
    known = (await shown.admin.get_json("/c/default/brokers/broker-a/0")).json["settings"]
    fields = {"address": address, "key": "longPollingEnable", "value": known["longPollingEnable"]}
    assert (await shown.do("brokers.set", **fields)).status == 200
    intention = next(
        each for each in shown.state.audit.newest_first(10) if each.what == "brokers.set" and not each.outcome
    )
    assert intention.before == {fields["key"]: fields["value"]}
    foreign = await shown.do("brokers.set", address="10.255.0.1:10911", key="a", value="b")
    assert foreign.status == 404
    assert "no broker is registered" in foreign.text


async def test_a_form_applies_only_what_it_has_shown(shown: Shown) -> None:
    fields = {"group": GROUP, "topic": ORDERS, "to": "end"}
    empty = await shown.admin.get(f"/c/default/do/offsets.reset?group={GROUP}&topic={ORDERS}")
    assert 'value="apply"' not in empty.text
    # A form that was not previewed, or was changed since, is shown again with its preview.
    for unseen in ("", "another"):
        page = await shown.do("offsets.reset", previewed=unseen, **fields)
        assert 'value="apply"' in page.text
        assert 'class="done"' not in page.text
    seen = re.search(r'name="previewed" value="(\w+)"', page.text)
    assert seen is not None
    changed = await shown.do("offsets.reset", previewed=seen[1], **{**fields, "to": "start"})
    assert 'class="done"' not in changed.text
    assert 'class="done"' in (await shown.do("offsets.reset", previewed=seen[1], **fields)).text


async def test_a_broker_is_drained_and_made_writable_again(shown: Shown) -> None:
    assert (await shown.do("brokers.drain", broker="broker-b", confirm="broker-b")).status == 200
    route = await shown.cluster.route(ORDERS)
    assert {each.broker_name: each.perm for each in route.queue_datas} == {"broker-a": 6, "broker-b": 4}
    await shown.do("brokers.drain", broker="broker-b", writable="true", confirm="broker-b")


async def test_an_entry_of_the_name_servers_is_set_and_deleted(shown: Shown) -> None:
    fields = {"namespace": "n", "key": "k"}
    assert (await shown.do("nameservers.kv", value="v", **fields)).status == 200
    preview = await shown.do("nameservers.kv", "preview", JSON, **fields)
    assert preview.json["plan"]["rows"][0]["value_now"] == "v"
    assert (await shown.do("nameservers.kv", **fields)).status == 200


async def test_every_write_is_announced_and_its_outcome_noted(shown: Shown) -> None:
    done = await shown.do("topics.put", accept=JSON, topic="Audited")
    outcome, intention = shown.state.audit.newest_first(2)
    assert (intention.id, outcome.id) == (done.json["entry"],) * 2
    assert (intention.who, intention.cluster, intention.fields["topic"]) == ("admin", "default", "Audited")
    assert outcome.outcome == "ok"
    assert "Audited" in (await shown.admin.get("/audit?q=audited")).text


async def test_what_cannot_be_audited_does_not_happen(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shown.state.audit, "_append", full)
    page = await shown.do("topics.put", accept=JSON, topic="Unaudited")
    assert page.status == 503
    assert "No space left" in page.json["error"]
    with pytest.raises(NotFound):
        await shown.cluster.route("Unaudited")
    assert (await shown.admin.get(f"/c/default/topics/{ORDERS}/messages")).status == 503
