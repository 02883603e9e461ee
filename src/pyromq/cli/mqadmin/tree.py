"""Every command of `mqadmin`, by noun: Apache's names and flags, failures in one line."""

from typing import Any

import click

from pyromq.cli.tree import LazyCommand, LazyGroup, did_you_mean
from pyromq.errors import PyroError

_HERE = "pyromq.cli.mqadmin"
_INTERRUPTED = 130

NOUNS: dict[str, tuple[str, dict[str, str]]] = {
    "cluster": (
        "Cluster",
        {
            "clusterList": "List brokers with their versions, rates and disk usage.",
            "clusterRT": "Time sends to every broker.",
        },
    ),
    "topics": (
        "Topics",
        {
            "topicList": "List topics.",
            "topicRoute": "Show which brokers hold a topic.",
            "topicStatus": "Show how far each queue of a topic reaches.",
            "topicClusterList": "List the clusters that hold a topic.",
            "updateTopic": "Make a topic or change it.",
            "updateTopicList": "Make or change topics from a JSON file.",
            "updateTopicPerm": "Change who may read and write a topic.",
            "updateOrderConf": "Fix the queues of an ordered topic.",
            "deleteTopic": "Delete a topic.",
            "allocateMQ": "Show who would read which queue.",
        },
    ),
    "progress": (
        "Progress",
        {
            "consumerProgress": "Show how far groups are behind.",
            "brokerConsumeStats": "Show how far all groups of a broker are behind.",
            "statsAll": "Show rates and lag of every topic and group.",
        },
    ),
    "groups": (
        "Consumer groups",
        {
            "getConsumerConfig": "Show the settings of a group.",
            "updateSubGroup": "Make a group or change it.",
            "updateSubGroupList": "Make or change groups from a JSON file.",
            "deleteSubGroup": "Delete a group.",
        },
    ),
    "offsets": (
        "Offsets",
        {
            "resetOffsetByTime": "Send a group back, or forward, to a point in time.",
            "skipAccumulatedMessage": "Send a group to the end of all queues.",
            "cloneGroupOffset": "Give a group the offsets of another.",
        },
    ),
    "messages": (
        "Messages",
        {
            "queryMsgById": "Show a message by its id.",
            "queryMsgByKey": "List messages by a key.",
            "queryMsgByUniqueKey": "Show a message by the id its sender gave it.",
            "queryMsgByOffset": "Show a message by its queue and offset.",
            "queryCq": "Show entries of a queue's index.",
        },
    ),
    "traces": (
        "Traces",
        {
            "queryMsgTraceById": "Show who sent and consumed a message, as they reported it.",
        },
    ),
    "reading": (
        "Reading and sending",
        {
            "printMsg": "Print the messages of a topic.",
            "printMsgByQueue": "Print the messages of a queue, or count them by tag.",
            "consumeMessage": "Print messages without moving any group.",
            "sendMessage": "Send a message.",
            "checkMsgSendRT": "Time sends to each queue of a topic.",
            "sendMsgStatus": "Send test messages to a broker.",
        },
    ),
    "brokers": (
        "Brokers",
        {
            "brokerStatus": "Show the figures of a running broker.",
            "getBrokerConfig": "Show the settings of brokers.",
            "updateBrokerConfig": "Change a setting of running brokers.",
            "cleanExpiredCQ": "Drop the parts of queues whose messages are gone.",
            "deleteExpiredCommitLog": "Delete log files that are past their time.",
            "cleanUnusedTopic": "Drop the queues of topics that are gone.",
        },
    ),
    "connections": (
        "Connections",
        {
            "consumerStatus": "Show what the members of a group say about themselves.",
            "consumerConnection": "List the members of a consumer group.",
            "producerConnection": "List the members of a producer group.",
            "producer": "List every producer of a broker.",
        },
    ),
    "name_servers": (
        "Name servers",
        {
            "getNamesrvConfig": "Show the settings of name servers.",
            "updateNamesrvConfig": "Change a setting of running name servers.",
            "updateKvConfig": "Store a text under a key.",
            "deleteKvConfig": "Remove a key.",
            "wipeWritePerm": "Take a broker out of all write routes.",
            "addWritePerm": "Put a broker back into all write routes.",
        },
    ),
    "exports": (
        "Exports",
        {
            "exportConfigs": "Write the settings of a cluster to a file.",
            "exportMetadata": "Write the topics and groups of a cluster to a file.",
            "exportMetrics": "Write what a cluster does to a file.",
        },
    ),
}


def attribute_of(command: str) -> str:
    """The name in Python of a command: `queryMsgById` is `query_msg_by_id`."""
    words = "".join(f"_{each.lower()}" if each.isupper() else each for each in command)
    for name, attribute in (("_c_q", "_cq"), ("_r_t", "_rt"), ("_m_q", "_mq")):
        words = words.replace(name, attribute)
    return words


_SENTENCES = {name: sentence for _, commands in NOUNS.values() for name, sentence in commands.items()}


class AdminGroup(LazyGroup):
    """The tree; `mqadmin help COMMAND` works as well as `mqadmin COMMAND -h`."""

    def __init__(self) -> None:
        super().__init__(
            "mqadmin",
            "Look at and change a running cluster, PyroMQ's or Apache's.\n\n"
            "Every command takes -n HOST:PORT, the address of a name server (several are separated by `;`);"
            " NAMESRV_ADDR in the environment saves typing it. --json prints JSON for scripts.",
            {
                name: LazyCommand(f"{_HERE}.{module}", attribute_of(name), sentence)
                for module, (_, commands) in NOUNS.items()
                for name, sentence in commands.items()
            },
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _help if cmd_name == "help" else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and name != "help" and name not in _SENTENCES:
            # java: upper and lower case make no difference
            others = {known.lower(): known for known in _SENTENCES}
            if name.lower() not in others:
                from pyromq.cli.mqadmin.absent import why_absent

                if reason := why_absent(name):
                    raise click.UsageError(f"{name} of Apache's mqadmin is not here: {reason}", ctx)
                hint = did_you_mean(name, _SENTENCES) or "; `mqadmin help` lists all"
                raise click.UsageError(f"there is no command {name}{hint}", ctx)
            args = [others[name.lower()], *args[1:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None
        except click.ClickException as failure:
            problem = failure.__cause__
            if isinstance(problem, PyroError) and failure.message == str(problem):
                from pyromq.cli.mqadmin.advice import with_advice

                raise click.ClickException(with_advice(problem)) from problem
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in NOUNS.values():
            with formatter.section(title):
                formatter.write_dl(sorted(commands.items()))


@click.command("help")
@click.argument("command", required=False)
@click.option("--markdown", is_flag=True, help="Print the reference page of all commands.")
@click.pass_context
def _help(ctx: click.Context, command: str | None, markdown: bool) -> None:
    """Explain a command."""
    group_context = ctx.parent
    assert group_context is not None
    group = group_context.command
    assert isinstance(group, AdminGroup)
    if markdown:
        from pyromq.cli.mqadmin import reference

        click.echo(reference.markdown(group, NOUNS), nl=False)
        return
    if command is None:
        click.echo(group.get_help(group_context))
        return
    name, found, _ = group.resolve_command(group_context, [command])
    assert found is not None
    with click.Context(found, info_name=name, parent=group_context) as explained:
        click.echo(found.get_help(explained))


mqadmin = AdminGroup()
