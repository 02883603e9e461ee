"""A request that lacks a field it needs, or has a text where a number belongs, is answered with an error.

On both ports, in both header forms, for every request that is addressed to brokers.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect
from tests.support.broker_cluster import running_broker
from tests.support.example_requests import example_request
from tests.support.wire_client import WireClient

from pyromq.broker.settings import vip_port
from pyromq.protocol.catalogue import BROKER, CATALOGUE, Declaration, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm

ADDRESSED = [declaration for declaration in CATALOGUE.values() if declaration.to & BROKER]
AT_ONCE = 64


def spoiled(declaration: Declaration, form: HeaderForm) -> Iterator[tuple[str, Frame]]:
    """Each spoiled in one way, with a word about it."""
    described = inspect.type_info(declaration.request_type)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        if field.name in ("body", "remark"):
            continue
        whole = encode_request(example_request(declaration), 0, form=form)
        assert field.encode_name in whole.ext, (declaration.name, field.name)
        if field.required:
            rest = {key: value for key, value in whole.ext.items() if key != field.encode_name}
            yield f"{declaration.name} without {field.name}", msgspec.structs.replace(whole, ext=rest)
        if isinstance(field.type, inspect.IntType):
            wrong = whole.ext | {field.encode_name: "many"}
            yield f"{declaration.name} with many {field.name}", msgspec.structs.replace(whole, ext=wrong)


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize("port", ["main", "fast"])
async def test_what_is_missing_or_of_the_wrong_kind_is_an_error(
    tmp_path: Path, form: HeaderForm, port: str
) -> None:
    accepted: list[str] = []
    asked = 0
    async with running_broker(tmp_path) as broker:
        host, main = broker.address
        client = await WireClient.connect((host, main if port == "main" else vip_port(main)))
        for declaration in ADDRESSED:
            frames = list(spoiled(declaration, form))
            for start in range(0, len(frames), AT_ONCE):
                part = frames[start : start + AT_ONCE]
                client.send(
                    *(msgspec.structs.replace(frame, opaque=number) for number, (_, frame) in enumerate(part))
                )
                for answer in await client.frames(len(part)):
                    assert answer.is_response
                    asked += 1
                    if answer.code == ResponseCode.SUCCESS or not answer.remark:
                        accepted.append(part[answer.opaque][0])
        await client.close()
        assert broker.store.topics.names() == []
    assert asked > 200
    assert accepted == []
