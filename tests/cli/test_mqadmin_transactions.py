"""Transactions that were given up: an operator finds their messages and has them checked again."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner, Result
from tests.support.broker_cluster import BrokerClient, message

from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import Refused
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.names import CHECK_MAX_TIME_TOPIC
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.standalone import Standalone, StandaloneSettings

TOPIC = "orders"
AT_ONCE = "transactionTimeOut=0\ntransactionCheckInterval=20\ntransactionCheckMax=1\n"


async def given_up(client: BrokerClient) -> StoredMessage:
    while True:
        with suppress(Refused):  # the topic comes with its first message
            pulled = await client.pull(topic=CHECK_MAX_TIME_TOPIC, group="TOOLS_CONSUMER")
            if pulled.messages:
                return pulled.messages[0]


async def test_a_transaction_that_was_given_up_is_checked_again(tmp_path: Path) -> None:
    settings = StandaloneSettings(
        store=tmp_path,
        namesrv_port=0,
        broker_port=0,
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with Standalone(settings) as running, BrokerClient(running.broker.address) as client:

        async def run(*words: str) -> Result:
            env = {"NAMESRV_ADDR": running.namesrv}
            return await asyncio.to_thread(CliRunner().invoke, mqadmin, [*words, "--timeout", "60"], env=env)

        await client.create_topic(TOPIC, 1)
        pairs = {"TRAN_MSG": "true", "PGROUP": "tills", "UNIQ_KEY": "A1"}
        await client.call(message(b"paid", TOPIC, properties=pairs, sys_flag=SysFlag.TRANSACTION_PREPARED))
        shown = await run("halfMessages")
        assert shown.exit_code == 0, shown.output
        assert re.search(r"#Open +#Oldest +#Topics.*\n.* 1 +\d+\.\d s +orders:1", shown.stdout), shown.stdout
        await client.call(UpdateBrokerConfig(body=AT_ONCE))
        kept = await given_up(client)
        message_id = encode_offset_message_id(kept.store_host, kept.log_offset)
        await client.heartbeat(producers=("tills",))
        done = await run("resumeCheckHalfMessage", "-i", message_id)
        assert done.exit_code == 0, done.output
        assert done.stdout == f"the transaction of {message_id} is checked again\n"
        check = await client.next_push()
        assert isinstance(check, CheckTransactionState)
        assert check.msg_id == "A1"
        missing = await run("resumeCheckHalfMessage", "-i", "0" * 32)
        assert missing.exit_code == 1
