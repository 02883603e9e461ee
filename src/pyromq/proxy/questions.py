"""Questions of operators, which brokers pass on to a member of a group, asked on that client's stream."""

from pyromq.errors import CallTimeout, ConnectionLost, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.inspection import (
    CMResult,
    ConsumeMessageDirectly,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerRunningInfo,
)
from pyromq.protocol.requests.lite import NotifyUnsubscribeLite
from pyromq.protocol.requests.pushes import NotifyConsumerIdsChanged
from pyromq.proxy.clients import Command, FrontClient
from pyromq.proxy.codes import Code
from pyromq.proxy.incoming import received
from pyromq.remoting.routing import Caller, handles

_RESULTS = {
    Code.OK: CMResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}


class BrokerQuestions:
    def __init__(self, client: FrontClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, request: NotifyConsumerIdsChanged, caller: Caller) -> None:
        """Nothing to do: members of a group that pops share nothing out."""

    @handles(NotifyUnsubscribeLite)
    def lite_topic_lost(self, request: NotifyUnsubscribeLite, caller: Caller) -> None:
        """Another client of an exclusive group reads the lite topic now."""
        command = Command()
        command.notify_unsubscribe_lite_command.lite_topic = request.lite_topic
        self._client.command(command)

    @handles(GetConsumerRunningInfo)
    async def running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        info = ConsumerRunningInfo(properties={"PROP_CLIENT_VERSION": "gRPC"})
        if request.jstack_enable:
            try:
                answer = await self._client.ask("print_thread_stack_trace_command", self._timeout_s)
            except (CallTimeout, ConnectionLost) as problem:
                raise Refused(ResponseCode.SYSTEM_BUSY, str(problem)) from None
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return BodyAnswer(body=info)

    @handles(ConsumeMessageDirectly)
    async def consume_directly(
        self, request: ConsumeMessageDirectly, caller: Caller
    ) -> BodyAnswer[ConsumeMessageDirectlyResult]:
        try:
            message = received(decode_record(request.body))
            answer = await self._client.ask("verify_message_command", self._timeout_s, message=message)
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {problem}") from None
        except (CallTimeout, ConnectionLost) as problem:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(problem)) from None
        result = _RESULTS.get(answer.status.code, CMResult.CR_THROW_EXCEPTION)
        return BodyAnswer(
            body=ConsumeMessageDirectlyResult(consume_result=result, remark=answer.status.message)
        )
