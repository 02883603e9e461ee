"""Nothing is kept of a request that was authorized and answered."""

import gc
from functools import partial
from pathlib import Path
from types import MethodType

from tests.support.access import ROOT, SECURE, client
from tests.support.broker_cluster import running_broker

from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.remoting.access.control import AccessControl


async def test_requests_under_access_control_leave_nothing_behind(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE) as broker, client(broker.address, ROOT) as root:
        for _ in range(50):
            await root.call(GetBrokerRuntimeInfo())
        gc.collect()
        # `isinstance` would ask the lazy objects of other tests for their class, and so wake them up.
        checks = [
            each
            for each in gc.get_objects()
            if type(each) is partial
            and type(each.func) is MethodType
            and type(each.func.__self__) is AccessControl
        ]
        assert len(checks) < 10
