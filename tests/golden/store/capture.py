"""How the golden stores were made: Apache's brokers write small files; what they wrote is listed beside them.

    python -m tests.golden.store.capture        (needs Java and Maven; writes beside this file)

Each release leaves two archives of its store directory: one after a clean stop, one of a broker killed
(same messages, `abort` still there). `<name>.json.xz` says which messages Java's client read from it before.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.apache import ApacheBroker, ApacheClient, ApacheNameServer, wait_until
from tests.support.apache_releases import RELEASES, Release
from tests.support.varied_messages import varied_messages

HERE: Final = Path(__file__).parent
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(12 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 10),
    "maxHashSlotNum": "50",
    "maxIndexNum": "60",
    "messageDelayLevel": "1s 2h",
    "timerWheelEnable": "false",
}
TOPICS: Final = ("Varied", "Delayed", "SCHEDULE_TOPIC_XXXX")


def capture(release: Release, clean: bool, root: Path) -> list[dict[str, Any]]:
    """Write the messages, read them all back with Java's client, then stop or kill the broker."""
    with (
        ApacheNameServer(release) as name_server,
        ApacheBroker(release, name_server.address, root, settings=SETTINGS) as broker,
        ApacheClient(release) as client,
    ):
        for topic in ("Varied", "Delayed"):
            client.create_topic(name_server.address, broker.address, topic)
        client.send(name_server.address, varied_messages("Varied", fillers=120))
        client.send(
            name_server.address,
            [
                {
                    "topic": "Delayed",
                    "body": body,
                    "delay": level,
                    "tags": tags,
                    "queue": level - 1,
                    "properties": {"UNIQ_KEY": f"7F000001000018B4AAC20000{level:08X}"},
                }
                for level, tags, body in (
                    (1, "Soon", b"delivered after a second"),
                    (2, "Later", b"still parked"),
                )
            ],
        )
        client.consume(name_server.address, "Varied", 10, group="golden_group")
        wait_until(lambda: len(client.read(name_server.address, "Delayed")) == 1, "delivery of the delayed")
        messages = [row for topic in TOPICS for row in client.read(name_server.address, topic)]
        if clean:
            broker.terminate()
        else:
            broker.kill()
    return messages


def archive(root: Path, target: Path) -> list[dict[str, Any]]:
    """A reproducible tar.xz of the directory; the list of its files."""
    listing = []
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            if not path.is_file() or path.name == "lock":
                continue
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.size = path.stat().st_size
            tar.addfile(member, io.BytesIO(path.read_bytes()))
            listing.append({"path": member.name, "size_bytes": member.size})
    target.write_bytes(lzma.compress(packed.getvalue(), preset=9))
    return listing


def main() -> None:
    for release in RELEASES:
        for clean in (True, False):
            name = f"{release.servers}-{'clean' if clean else 'killed'}"
            with tempfile.TemporaryDirectory(prefix="pyromq-golden-") as root:
                messages = capture(release, clean, Path(root))
                files = archive(Path(root), HERE / f"{name}.tar.xz")
            for message in messages:
                message["body"] = base64.b64encode(message["body"]).decode()
            description = {"release": release.servers, "clean": clean, "settings": SETTINGS, "files": files}
            rows = ",\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
            head = json.dumps(description)[:-1]
            document = f'{head}, "messages": [\n{rows}\n]}}\n'
            (HERE / f"{name}.json.xz").write_bytes(lzma.compress(document.encode(), preset=9))
            sys.stderr.write(
                f"{name}: {len(messages)} messages, {(HERE / f'{name}.tar.xz').stat().st_size} bytes\n"
            )


if __name__ == "__main__":
    main()
