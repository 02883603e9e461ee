"""pyromq, one command for everything; a failure is one line with a hint."""

from pyromq.cli.tree import LazyCommand, LazyGroup

COMMANDS = LazyGroup(
    "pyromq",
    "Apache RocketMQ, rebuilt in Python.",
    {
        "acl": LazyCommand("pyromq.cli.acl", "acl", "Show which rule of access control decides."),
        "admin": LazyCommand("pyromq.cli.mqadmin.tree", "mqadmin", "Inspect and change a running cluster."),
        "bench": LazyCommand("pyromq.cli.bench.command", "bench", "Measure how fast a cluster is."),
        "broker": LazyCommand("pyromq.apps.broker", "command", "Run a broker."),
        "config": LazyCommand("pyromq.apps.config", "config", "List every setting of a server."),
        "console": LazyCommand("pyromq.apps.console", "console", "Run the web console, or change its users."),
        "consume": LazyCommand("pyromq.cli.consume", "consume", "Write the messages of a topic to stdout."),
        "controller": LazyCommand("pyromq.apps.controller", "command", "Run a controller."),
        "mcp": LazyCommand("pyromq.apps.mcp", "command", "Let an assistant inspect clusters, over MCP."),
        "namesrv": LazyCommand("pyromq.apps.namesrv", "command", "Run a name server."),
        "pipeline": LazyCommand(
            "pyromq.apps.pipelines.tree", "pipeline", "Run Spark jobs over topics: archive, replay, SQL …"
        ),
        "produce": LazyCommand("pyromq.cli.produce", "produce", "Send the lines of stdin to a topic."),
        "proxy": LazyCommand("pyromq.apps.proxy", "command", "Run the gRPC front for RocketMQ 5 clients."),
        "recall": LazyCommand(
            "pyromq.cli.recall", "recall", "Take back timed messages before their delivery."
        ),
        "standalone": LazyCommand(
            "pyromq.apps.standalone", "command", "Run a name server and a broker in one process."
        ),
        "store": LazyCommand("pyromq.cli.store", "store", "Inspect, repair or restore a broker's files."),
        "version": LazyCommand("pyromq.cli.version", "version", "Print the version."),
    },
)


def main() -> None:
    COMMANDS(prog_name="pyromq")
