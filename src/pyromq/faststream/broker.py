"""FastStream's broker. A topic is a topic; a handler that fails gets its message again, later."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from fast_depends import Provider, dependency_provider
from faststream import ContextRepo
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification.schema import BrokerSpec

from pyromq.client.producer import DEFAULT_REQUEST_TIMEOUT_S
from pyromq.client.settings import ClientSettings, Credentials, TlsOptions
from pyromq.client.values import ReceivedMessage, SendResult
from pyromq.errors import ConfigError
from pyromq.faststream.commands import RocketCommand, checked_fields
from pyromq.faststream.config import RocketBrokerConfig, rocket_logger_state
from pyromq.faststream.link import StreamLink
from pyromq.faststream.message import RocketMessage
from pyromq.faststream.producer import RocketProducer
from pyromq.faststream.registrator import RocketRegistrator

_MAX_RETRIES = 16
_PING_TIMEOUT_S = 5.0


@dataclass(kw_only=True)
class BrokerOptions:
    """Arguments of `RocketBroker`, as FastStream's own brokers do."""

    graceful_timeout: float | None = 15.0
    ack_policy: AckPolicy = EMPTY
    decoder: Any = None
    parser: Any = None
    codec: Any = None
    dependencies: Sequence[Any] = ()
    middlewares: Sequence[Any] = ()
    routers: Iterable[RocketRegistrator] = ()
    id_generator: Any = gen_cor_id
    security: BaseSecurity | None = None
    specification_url: str | Iterable[str] | None = None
    protocol: str = "rocketmq"
    protocol_version: str | None = None
    description: str | None = None
    tags: Iterable[Any] = ()
    logger: Any = EMPTY
    log_level: int = logging.INFO
    apply_types: bool = True
    serializer: Any = EMPTY
    provider: Provider | None = None
    context: ContextRepo | None = None


class RocketBroker(RocketRegistrator, BrokerUsecase[ReceivedMessage, StreamLink, RocketBrokerConfig]):
    """`namesrv`: addresses of name servers or a URL, None: PYROMQ_URL or NAMESRV_ADDR.

    `given`: the fields of `BrokerOptions`, of `TaskOptions` and of `ClientSettings`.
    """

    def __init__(self, namesrv: str | Iterable[str] | None = None, **given: Any) -> None:
        own = {name: value for name, value in given.items() if name in BrokerOptions.__dataclass_fields__}
        options = BrokerOptions(**own)
        client = {"max_redeliveries": given.pop("max_retries", _MAX_RETRIES), **_secured(options.security)}
        client |= {name: value for name, value in given.items() if name not in own}
        servers = namesrv if namesrv is None or isinstance(namesrv, str) else list(namesrv)
        self._new_link = partial(StreamLink, "FASTSTREAM", servers, client)
        known = ClientSettings.of(**self._new_link().client)  # bad options stop the start
        shown = options.specification_url or known.namesrv
        super().__init__(
            routers=options.routers,
            config=RocketBrokerConfig(
                producer=RocketProducer(options.parser, options.decoder),
                broker_middlewares=options.middlewares,
                broker_parser=options.parser,
                broker_decoder=options.decoder,
                broker_codec=options.codec,
                logger=rocket_logger_state(logger=options.logger, log_level=options.log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=options.apply_types,
                    serializer=options.serializer,
                    provider=options.provider or dependency_provider,
                    context=options.context or ContextRepo(),
                ),
                broker_dependencies=options.dependencies,
                graceful_timeout=options.graceful_timeout,
                ack_policy=options.ack_policy,
                id_generator=options.id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=options.description,
                url=[shown] if isinstance(shown, str) else list(shown),
                protocol=options.protocol,
                protocol_version=options.protocol_version,
                tags=options.tags,
                security=options.security,
            ),
        )

    def __repr__(self) -> str:
        return f"<RocketBroker {', '.join(self.specification.url)}>"

    async def _connect(self) -> StreamLink:
        link = self._new_link()
        await link.start()
        self.config.broker_config.connect(link)
        return link

    async def start(self) -> None:
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        await super().stop(exc_type, exc_val, exc_tb)
        link, self._connection = self._connection, None
        if link is not None:
            self.config.broker_config.disconnect()
            await link.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether the brokers answer, or a name server while none is known."""
        if self._connection is None:
            return False
        health = await self._connection.producer.health(timeout_s=timeout or _PING_TIMEOUT_S)
        return health.is_ok

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **fields: Any,
    ) -> SendResult | None:
        """Send a message. `fields`: `tag`, `keys`, `sharding_key`, `delay_s`, `deliver_at`, `priority`."""
        cmd = RocketCommand(
            message,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            fields=checked_fields(fields),
            _publish_type=PublishType.PUBLISH,
        )
        result: SendResult | None = await self._basic_publish(cmd, producer=self.config.producer)
        return result

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        topic: str = "",
        *,
        timeout: float = DEFAULT_REQUEST_TIMEOUT_S,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **fields: Any,
    ) -> RocketMessage:
        """Send a message and wait for what its handler returns. Raises TimeoutError if nothing comes."""
        cmd = RocketCommand(
            message,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout_s=timeout,
            fields=checked_fields(fields),
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMessage = await self._basic_request(cmd, producer=self.config.producer)
        return reply


def _secured(security: BaseSecurity | None) -> dict[str, Any]:
    """FastStream's security as options of clients; the trusted certificates come from the system."""
    if security is None:
        return {}
    if type(security) not in (BaseSecurity, SASLPlaintext):
        raise ConfigError("security", security, "BaseSecurity or SASLPlaintext, or the option credentials")
    if security.ssl_context is not None:
        raise ConfigError("security", security, "use_ssl without ssl_context, or the option tls")
    options: dict[str, Any] = {"tls": TlsOptions(verify=True)} if security.use_ssl else {}
    if isinstance(security, SASLPlaintext):
        options["credentials"] = Credentials(security.username, security.password)
    return options
