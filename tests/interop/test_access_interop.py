"""Apache's Java and Go clients at our broker under access control: with right keys, wrong ones and none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.apache import ClientOf
from tests.support.apache_releases import RELEASES, Release
from tests.support.go_client import GoClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

KEY, SECRET = "RocketMQ", "12345678"
TOPIC = "Orders"
VERSION_1 = "1.0"
VERSION_2 = "2.0"


@pytest.fixture(scope="module", params=[VERSION_1, VERSION_2])
def names(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The name server, and the code of a refusal."""
    settings = {
        "denyByDefault": "true",
        "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    }
    if request.param == VERSION_1:
        file: Path = tmp_path_factory.mktemp("conf") / "plain_acl.yml"
        account = {
            "accessKey": KEY,
            "secretKey": SECRET,
            "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "SUB",
        }
        file.write_text(yaml.safe_dump({"accounts": [account]}))
        settings = {"aclEnable": "true", "aclFile": str(file)}
    with OwnNameServer() as server, OwnBroker(server.address, settings=settings) as broker:
        yield server.address, "1" if request.param == VERSION_1 else "16"
        assert " ERROR " not in broker.output(), broker.output()


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_java_clients_with_right_wrong_and_no_keys(
    names: tuple[str, str], client_of: ClientOf, release: Release
) -> None:
    server, code = names
    client = client_of(release, "JSON")
    message = {"topic": TOPIC, "body": b"paid"}
    for _ in range(2):
        assert len(client.send(server, [message, message], accessKey=KEY, secretKey=SECRET)) == 2
    for keys in (
        {},
        {"accessKey": KEY, "secretKey": "87654321"},
        {"accessKey": "nobody", "secretKey": SECRET},
    ):
        with pytest.raises(RuntimeError, match=f"CODE: {code} "):
            client.send(server, [message], **keys)


@pytest.mark.parametrize(
    ("key", "secret"), [(KEY, SECRET), (KEY, "87654321"), ("", "")], ids=["right", "wrong", "none"]
)
def test_go_clients_with_right_wrong_and_no_keys(names: tuple[str, str], key: str, secret: str) -> None:
    server, _ = names
    env = {"PEER_ACCESS_KEY": key, "PEER_SECRET_KEY": secret, "PEER_TELLS_FAILURES": "1"}
    with GoClient("send", server, "tills", env=env) as producer:
        producer.ask_to_send(TOPIC, "paid")
        if secret == SECRET:
            producer.heard("sent", 1)
        else:
            producer.heard("failed", 1)
            assert producer.heard("sent") == []
