"""Bodies that name a schema of a registry are shown as what they mean."""

import json
from pathlib import Path
from typing import Any

from tests.support.console_cluster import ORDERS, Shown, shown_cluster
from tests.support.schema_registry import stand_in_registry

from pyromq.admin import messages
from pyromq.spark.avro import avro_writer
from pyromq.spark.protobuf import protobuf_writer
from pyromq.spark.registered_bodies import RegisteredBodies
from pyromq.spark.registry import Registry, framed

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "card", "type": "string"},
            {"name": "seal", "type": "bytes"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
PROTOBUF = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string card = 2; }'
SECRET = "4929-geheim"


async def _message(shown: Shown, body: bytes, form: str = "") -> Any:
    sent = await messages.send_with(shown.cluster, ORDERS, body, {})
    path = f"/c/default/topics/{ORDERS}/messages/{sent.message_id}?form={form}"
    assert (await shown.admin.get(path)).status == 200
    return (await shown.admin.get_json(path)).json


async def test_a_message_is_shown_by_the_schema_that_its_body_names(tmp_path: Path) -> None:
    with stand_in_registry() as server:
        known = Registry(server.url)
        avro = known.register("orders-value", AVRO)
        protobuf = known.register("protos-value", PROTOBUF, "PROTOBUF")
        plain = known.register("plain-value", '{"type": "object"}', "JSON")
        async with shown_cluster(tmp_path) as shown:
            shown.state.decode = RegisteredBodies(server.url, None, 30).decode

            body = avro_writer(avro)({"id": 2**53 + 1, "card": SECRET, "seal": b"\xff\x00", "at": 1500})
            data = await _message(shown, body)
            assert (data["body"]["form"], data["body"]["size"]) == ("avro", len(body))
            assert data["schema"] == {"id": avro.id, "name": "Order"}
            found = json.loads(data["body"]["text"])
            assert found["id"] == 2**53 + 1
            assert found["seal"] == "/wA="
            assert found["at"] == "1970-01-01T00:00:01.500000+00:00"
            assert (await _message(shown, body, "hex"))["body"]["form"] == "hex"

            data = await _message(shown, protobuf_writer(protobuf)({"id": 7, "card": SECRET}))
            assert data["schema"] == {"id": protobuf.id, "name": "shop.Order"}
            assert json.loads(data["body"]["text"]) == {"id": "7", "card": SECRET}

            data = await _message(shown, framed(plain.id, b'{"id": 7}'))
            assert (data["body"]["form"], json.loads(data["body"]["text"])) == ("json", {"id": 7})

            data = await _message(shown, b"\x00abc")
            assert (data["schema"], data["not_decoded"]) == (None, "")


async def test_a_body_that_cannot_be_decoded_says_why_and_is_shown_as_it_is(tmp_path: Path) -> None:
    with stand_in_registry() as server:
        avro = Registry(server.url).register("orders-value", AVRO)
        async with shown_cluster(tmp_path) as shown:
            shown.state.decode = RegisteredBodies(server.url, None, 30).decode
            data = await _message(shown, framed(avro.id, b"\x02"))
            assert "not an Avro value of the schema" in data["not_decoded"]
            assert data["body"]["form"] == "hex"
            assert "Schema not found" in (await _message(shown, framed(999, b"x")))["not_decoded"]
            shown.state.decode = RegisteredBodies("http://127.0.0.1:1", None, 30).decode
            assert "does not answer" in (await _message(shown, framed(avro.id, b"\x02")))["not_decoded"]


async def test_masked_fields_of_a_decoded_body_are_seen_in_no_form(tmp_path: Path) -> None:
    with stand_in_registry() as server:
        avro = Registry(server.url).register("orders-value", AVRO)
        body = avro_writer(avro)({"id": 1, "card": SECRET, "seal": b"", "at": 0})
        async with shown_cluster(tmp_path, masked_fields="card") as shown:
            shown.state.decode = RegisteredBodies(server.url, None, 30).decode
            for form in ("", "text", "hex", "msgpack"):
                text = (await _message(shown, body, form))["body"]["text"]
                assert '"card": "******"' in text
                assert SECRET not in text
