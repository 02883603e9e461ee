"""The request that stores a message is built here and nowhere else.

A new field of a send is declared in `protocol/requests/sending.py` and filled in here.
"""

from typing import Final, NamedTuple

import msgspec

from pyromq.protocol.names import AUTO_CREATE_TOPIC
from pyromq.protocol.request_forms import FilledForm, RequestForm, as_text
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageBatch, SendMessageV2

INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""java: the group of messages that are sent without a producer."""

DEFAULT_QUEUES: Final = 4
"""Queues of a topic that its first message creates."""

_VARYING: Final = ("queue_id", "sys_flag", "born_timestamp", "flag", "properties")
"""Fields that differ from message to message; the others are the same for a topic and a broker."""

_MAX_FORMS: Final = 1024


class PreparedMessage(msgspec.Struct, gc=False):
    """A message that is ready to be sent: checked, encoded, compressed."""

    topic: str
    """As brokers know it."""
    body: bytes
    properties: str
    unique_key: str
    born_ms: int
    sys_flag: int = 0
    flag: int = 0
    wait_stored: bool = True
    tags: str | None = None
    keys: str = ""
    is_delayed: bool = False
    kind: type[SendMessageV2] = SendMessageV2
    """The request that carries it."""
    reconsume_times: int | None = None
    max_reconsume_times: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.properties)


class SendTerms(NamedTuple):
    """The fields that all sends of one sender have in common."""

    group: str | None
    """The producer group, as brokers know it; None: that of each message has the name of its topic."""
    template: str = AUTO_CREATE_TOPIC
    """The topic from which brokers create a missing one."""
    template_queues: int = DEFAULT_QUEUES
    unit_mode: bool | None = None


def send_request(
    message: PreparedMessage,
    terms: SendTerms,
    queue_id: int,
    broker_name: str | None = None,
    *,
    is_resent: bool = False,
) -> SendMessageV2:
    """`is_resent`: an earlier try may have stored it."""
    return message.kind(
        producer_group=message.topic if terms.group is None else terms.group,
        topic=message.topic,
        default_topic=terms.template,
        default_topic_queue_nums=terms.template_queues,
        queue_id=queue_id,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_ms,
        flag=message.flag,
        properties=message.properties,
        reconsume_times=message.reconsume_times,
        unit_mode=terms.unit_mode,
        max_reconsume_times=message.max_reconsume_times,
        batch=True if message.kind is SendMessageBatch else None,
        target_broker_name=broker_name,
        resent=is_resent or None,
        body=message.body,
    )


class SendForms:
    """The requests of one sender; also as forms, which are cheaper to fill than requests are to encode."""

    def __init__(self, terms: SendTerms) -> None:
        self._terms = terms
        self._forms: dict[tuple[type[SendMessageV2], str, str | None], RequestForm[SendMessageAnswer]] = {}

    def __repr__(self) -> str:
        return f"<SendForms {self._terms} forms={len(self._forms)}>"

    def request(
        self,
        message: PreparedMessage,
        queue_id: int,
        broker_name: str | None = None,
        *,
        is_resent: bool = False,
    ) -> SendMessageV2:
        return send_request(message, self._terms, queue_id, broker_name, is_resent=is_resent)

    def filled(
        self, message: PreparedMessage, queue_id: int, broker_name: str | None = None
    ) -> FilledForm[SendMessageAnswer]:
        """The request of a message that was never consumed: forms have no count of retries."""
        form = self._forms.get((message.kind, message.topic, broker_name))
        if form is None:
            form = self._form(message.kind, message.topic, broker_name)
        text = as_text(message.properties)
        values = (queue_id, message.sys_flag, message.born_ms, message.flag, text)
        return FilledForm(form, values, message.body)

    def pieces(
        self, kind: type[SendMessageV2], topic: str, broker_name: str | None = None
    ) -> tuple[bytes, ...]:
        """The bytes around queue id, system flag, time, flag, properties and opaque number."""
        return self._form(kind, topic, broker_name).pieces

    def _form(
        self, kind: type[SendMessageV2], topic: str, broker_name: str | None
    ) -> RequestForm[SendMessageAnswer]:
        form = self._forms.get((kind, topic, broker_name))
        if form is None:
            if len(self._forms) == _MAX_FORMS:
                self._forms.clear()
            sample = PreparedMessage(topic, b"", "", "", 0, kind=kind)
            form = RequestForm(self.request(sample, 0, broker_name), _VARYING)
            self._forms[kind, topic, broker_name] = form
        return form
