"""How the golden frames were made: Java peers talk through recording proxies, one of each kind is kept.

    python -m tests.golden.frames.capture        (needs Java and Maven; writes beside this file)

A kind is (release, header form, server, request code, request or answer code). Addresses are loopback; a
frame that holds anything of the machine it was taken on (a path, its host name) is left out.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.apache import ApacheBroker, ApacheClient, ApacheNameServer, wait_until
from tests.support.apache_releases import RELEASES, Release
from tests.support.recording_proxy import RecordingProxy, SeenFrame

HERE: Final = Path(__file__).parent
FORMS: Final = {"JSON": "json", "ROCKETMQ": "binary"}


@dataclass
class Header:
    """The fields of a header, read without any of PyroMQ's own decoding."""

    code: int
    opaque: int
    flag: int
    version: int
    language: str | int
    remark: str | None
    ext: dict[str, str]
    body: bytes


def read_header(frame: bytes) -> Header:
    marked = int.from_bytes(frame[4:8], "big")
    header, body = frame[8 : 8 + (marked & 0xFFFFFF)], frame[8 + (marked & 0xFFFFFF) :]
    if marked >> 24 == 0:
        fields: dict[str, Any] = json.loads(header)
        return Header(
            fields["code"],
            fields["opaque"],
            fields["flag"],
            fields["version"],
            fields["language"],
            fields.get("remark"),
            fields.get("extFields") or {},
            body,
        )
    code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", header)
    remark = header[17 : 17 + remark_length].decode()
    at = 17 + remark_length + 4
    ext = {}
    while at < len(header):
        (length,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (length,) = struct.unpack_from(">i", header, at)
        ext[key] = header[at + 4 : at + 4 + length].decode()
        at += 4 + length
    return Header(code, opaque, flag, version, language, remark or None, ext, body)


def converse(release: Release, form: str) -> dict[str, list[SeenFrame]]:
    """Everything a broker, a producer, consumers and the admin tool said to a name server and to a broker."""
    with contextlib.ExitStack() as running:
        store = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-golden-")))
        name_server = running.enter_context(ApacheNameServer(release, header_form=form))
        names = running.enter_context(RecordingProxy(name_server.address))
        broker = running.enter_context(
            ApacheBroker(
                release,
                names.address,
                store / "a",
                name="broker-a",
                header_form=form,
                settings={
                    "forceRegister": "false",
                    "enableSlaveActingMaster": "true",
                    "compatibleWithOldNameSrv": "false",
                },
            )
        )
        second = running.enter_context(
            ApacheBroker(
                release,
                names.address,
                store / "b",
                name="broker-b",
                header_form=form,
                settings={"compressedRegister": "true"},
            )
        )
        messages = running.enter_context(RecordingProxy(broker.address))
        names.replace({broker.address: messages.address})
        client = running.enter_context(ApacheClient(release, header_form=form))
        _administer(client, names.address, messages.address)
        _talk(client, names.address)
        wait_until(
            lambda: any(read_header(seen.data).code == 322 for seen in names.frames()), "QUERY_DATA_VERSION"
        )
        second.terminate()
        wait_until(
            lambda: any(read_header(seen.data).code == 104 for seen in names.frames()), "UNREGISTER_BROKER"
        )
        return {"nameserver": names.frames(), "broker": messages.frames()}


def _administer(client: ApacheClient, names: str, broker: str) -> None:
    at = ("-n", names)
    client.create_topic(names, broker, "Orders")
    for command in (
        ["clusterList"],
        ["topicList"],
        ["topicList", "-c"],
        ["topicRoute", "-t", "Orders"],
        ["topicRoute", "-t", "NoSuchTopic"],
        ["topicClusterList", "-t", "Orders"],
        ["topicStatus", "-t", "Orders"],
        ["updateKvConfig", "-s", "space", "-k", "key", "-v", "value"],
        ["deleteKvConfig", "-s", "space", "-k", "key"],
        ["updateOrderConf", "-m", "put", "-t", "Orders", "-v", "broker-a:4"],
        ["updateOrderConf", "-m", "get", "-t", "Orders"],
        ["updateOrderConf", "-m", "delete", "-t", "Orders"],
        ["updateOrderConf", "-m", "get", "-t", "Orders"],
        ["wipeWritePerm", "-b", "broker-a"],
        ["addWritePerm", "-b", "broker-a"],
        ["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"],
        ["updateSubGroup", "-b", broker, "-g", "golden_group"],
        ["consumerProgress", "-g", "golden_group"],
        ["deleteTopic", "-c", "DefaultCluster", "-t", "Nothing"],
    ):
        client.mqadmin(*command, *at)


def _talk(client: ApacheClient, names: str) -> None:
    client.send(
        names,
        [
            {"topic": "Orders", "body": b"plain", "tags": "TagA", "keys": "k1 k2", "queue": 0},
            {"topic": "Orders", "body": b"delayed", "delay": 1, "queue": 1},
            {"topic": "Orders", "body": b"0123456789abcdef" * 512, "queue": 2},
            *({"topic": "Orders", "body": b"batched %d" % i, "batch": "one"} for i in range(3)),
        ],
        group="golden_producer",
    )
    client.read(names, "Orders")
    client.consume(names, "Orders", 5, group="golden_group", expression="*")


def select(frames: list[SeenFrame]) -> list[dict[str, Any]]:
    """The first request of each code, and the first answer of each code to each request code."""
    secrets = [str(Path.home()).encode(), b"/tmp/", b"pyromq-", b'"' + socket.gethostname().encode()]
    asked: dict[tuple[int, bool, int], int] = {}
    kept: dict[tuple[object, ...], dict[str, Any]] = {}
    for seen in frames:
        header = read_header(seen.data)
        is_answer = bool(header.flag & 1)
        if is_answer:
            request_code = asked.get((seen.connection, seen.to_server, header.opaque))
            if request_code is None:
                continue
        else:
            request_code = header.code
            asked[seen.connection, not seen.to_server, header.opaque] = header.code
        if any(secret in seen.data for secret in secrets):
            continue
        # java: 5.x says compressed=false even when it compressed the body.
        compressed = request_code == 103 and header.body[:1] == b"\x78"
        kind = (request_code, is_answer, header.code if is_answer else None, seen.to_server, compressed)
        kept.setdefault(
            kind,
            {
                "request": request_code,
                "to_server": seen.to_server,
                "answer": is_answer,
                "code": header.code,
                "language": header.language,
                "version": header.version,
                "opaque": header.opaque,
                "flag": header.flag,
                "remark": header.remark,
                "ext": header.ext,
                "body_length": len(header.body),
                "data": seen.data,
            },
        )
    return sorted(kept.values(), key=lambda entry: (entry["request"], entry["answer"], entry["code"]))


def main() -> None:
    index = []
    for release in RELEASES:
        for form, form_name in FORMS.items():
            file = HERE / f"{release}-{form_name}.bin"
            data = bytearray()
            for server, frames in converse(release, form).items():
                for entry in select(frames):
                    frame = _with_loopback_ids(entry.pop("data"))
                    index.append(
                        {
                            "file": file.name,
                            "at": len(data),
                            "length": len(frame),
                            "server": server,
                            **entry,
                            "ext": read_header(frame).ext,
                        }
                    )
                    data += frame
            file.write_bytes(data)
            sys.stderr.write(f"{file.name}: {len(data)} bytes\n")
    lines = ",\n".join(json.dumps(entry) for entry in index)
    (HERE / "index.json").write_text(f"[\n{lines}\n]\n")


def _with_loopback_ids(frame: bytes) -> bytes:
    """Client-made message ids begin with the machine's address in hexadecimal."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address = socket.inet_aton(probe.getsockname()[0])
    return frame.replace(address.hex().upper().encode(), b"7F000001")


if __name__ == "__main__":
    main()
