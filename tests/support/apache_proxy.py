"""Apache's gRPC proxy as a peer: in front of any name server, or with a broker of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.apache import _SMALL, LOOPBACK, ApacheBroker, JavaProcess, free_ports
from tests.support.apache_releases import APACHE_5, Release, fetch


class ApacheProxy(JavaProcess):
    """`with ApacheProxy(name_servers) as proxy: proxy.address`.

    With a `store` it starts a broker in the same JVM (its local mode), which listens on `broker_port`.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        store: Path | None = None,
        release: Release = APACHE_5,
        broker: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = _SMALL,
    ) -> None:
        self.port = free_ports(2)
        self.address = f"{LOOPBACK}:{self.port}"
        self.broker_port = 0
        self._broker: ApacheBroker | None = None
        super().__init__(
            f"{fetch(release.servers, 'proxy')}/*",
            "org.apache.rocketmq.proxy.ProxyStartup",
            [],
            "rocketmq-proxy startup successfully",
            jvm=jvm,
        )
        configuration = self.home / "conf" / "rmq-proxy.json"
        configuration.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": "DefaultCluster",
                    "namesrvAddr": name_servers,
                    "grpcServerPort": self.port,
                    "remotingListenPort": self.port + 1,
                    "localServeAddr": LOOPBACK,
                    **(settings or {}),
                }
            )
        )
        self._command += ["-n", name_servers, "-pc", str(configuration)]
        if store is None:
            self._command += ["-pm", "cluster"]
        else:
            # Its file is all that is needed of a broker that is not started by itself.
            self._broker = unstarted = ApacheBroker(release, name_servers, store, settings=broker)
            self.broker_port = unstarted.port
            self._command += ["-pm", "local", "-bc", str(unstarted.home / "broker.conf")]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._broker is not None:
            shutil.rmtree(self._broker.home, ignore_errors=True)
