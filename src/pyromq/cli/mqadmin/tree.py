"""Every command of `mqadmin`, by noun, with Apache's names and flags; a failure is one line."""

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
            "clusterRT": "Measure send times to every broker.",
        },
    ),
    "topics": (
        "Topics",
        {
            "topicList": "List topics.",
            "topicRoute": "Show which brokers hold a topic.",
            "topicStatus": "Show the first and last offset of each queue of a topic.",
            "topicClusterList": "List the clusters that hold a topic.",
            "updateTopic": "Create or change a topic.",
            "updateTopicList": "Create or change topics from a JSON file.",
            "updateTopicPerm": "Change the permission of a topic.",
            "updateOrderConf": "Set, get or delete the fixed queues of an ordered topic.",
            "deleteTopic": "Delete a topic.",
            "allocateMQ": "Show how queues would be allocated to members.",
        },
    ),
    "progress": (
        "Progress",
        {
            "consumerProgress": "Show the lag of groups.",
            "brokerConsumeStats": "Show the lag of all groups of a broker.",
            "statsAll": "Show rates and lag of every topic and group.",
        },
    ),
    "groups": (
        "Consumer groups",
        {
            "getConsumerConfig": "Show the settings of a group.",
            "updateSubGroup": "Create or change a group.",
            "updateSubGroupList": "Create or change groups from a JSON file.",
            "deleteSubGroup": "Delete a group.",
        },
    ),
    "offsets": (
        "Offsets",
        {
            "resetOffsetByTime": "Reset the offsets of a group to a point in time.",
            "skipAccumulatedMessage": "Reset a group to the end of all queues.",
            "cloneGroupOffset": "Copy the offsets of a group to another.",
        },
    ),
    "messages": (
        "Messages",
        {
            "queryMsgById": "Show a message by its id.",
            "queryMsgByKey": "List messages by a key.",
            "queryMsgByUniqueKey": "Show a message by its unique id.",
            "queryMsgByOffset": "Show a message by its queue and offset.",
            "queryCq": "Show entries of a consume queue.",
        },
    ),
    "traces": (
        "Traces",
        {
            "queryMsgTraceById": "Show who sent and consumed a message, as traced.",
        },
    ),
    "reading": (
        "Reading and sending",
        {
            "printMsg": "Print the messages of a topic.",
            "printMsgByQueue": "Print the messages of a queue, or count them by tag.",
            "consumeMessage": "Print messages without changing any offsets.",
            "sendMessage": "Send a message.",
            "checkMsgSendRT": "Measure send times to each queue of a topic.",
            "sendMsgStatus": "Send test messages to a broker.",
        },
    ),
    "brokers": (
        "Brokers",
        {
            "brokerStatus": "Show the runtime figures of brokers.",
            "getBrokerConfig": "Show the settings of brokers.",
            "updateBrokerConfig": "Change a setting of running brokers.",
            "cleanExpiredCQ": "Delete consume queue entries whose messages are gone.",
            "deleteExpiredCommitLog": "Delete expired commit log files.",
            "cleanUnusedTopic": "Delete the consume queues of deleted topics.",
        },
    ),
    "replication": (
        "Replication",
        {
            "haStatus": "Show how far replicas have the log.",
        },
    ),
    "connections": (
        "Connections",
        {
            "consumerStatus": "Show what the members of a group report.",
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
            "updateKvConfig": "Set a key.",
            "deleteKvConfig": "Remove a key.",
            "wipeWritePerm": "Remove the write permission of a broker.",
            "addWritePerm": "Give a broker its write permission back.",
        },
    ),
    "controllers": (
        "Controllers",
        {
            "getControllerMetaData": "Show which controller leads.",
            "getSyncStateSet": "Show the master and the replicas in sync of broker groups.",
            "getBrokerEpoch": "Show which masters wrote which parts of the logs.",
            "electMaster": "Make a replica in sync the master of its group.",
            "cleanBrokerMetadata": "Have the controller forget brokers.",
            "getControllerConfig": "Show the settings of controllers.",
            "updateControllerConfig": "Change a setting of running controllers.",
        },
    ),
    "exports": (
        "Exports",
        {
            "exportConfigs": "Write the settings of a cluster to a file.",
            "exportMetadata": "Write the topics and groups of a cluster to a file.",
            "exportMetrics": "Write the figures of a cluster to a file.",
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
    """`mqadmin help COMMAND` works as well as `mqadmin COMMAND -h`."""

    def __init__(self) -> None:
        super().__init__(
            "mqadmin",
            "Inspect and change a running cluster, PyroMQ's or Apache's.\n\n"
            "Every command takes -n HOST:PORT, the address of a name server (several are separated by `;`);"
            " NAMESRV_ADDR in the environment sets the default. --json prints JSON for scripts.",
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
                    raise click.UsageError(f"PyroMQ's mqadmin does not have {name}: {reason}", ctx)
                hint = did_you_mean(name, _SENTENCES) or "; `mqadmin help` lists all commands"
                raise click.UsageError(f"unknown command {name}{hint}", ctx)
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
