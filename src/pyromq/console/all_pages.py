"""Every page and stream of the console: where it is, what shows it, and who may see it."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from pyromq.console import streams
from pyromq.console.page import Page
from pyromq.console.pages import (
    access,
    account,
    brokers,
    clients,
    controllers,
    find,
    group,
    groups,
    lite,
    login,
    message,
    messages,
    nameservers,
    operation,
    overview,
    pipelines,
    replication,
    spark,
    stores,
    tail,
    topic,
    topics,
)
from pyromq.console.security.roles import UserRole
from pyromq.console.visit import Visit

PAGES = (
    Page("/", overview.clusters, "clusters.html"),
    Page("/login", login.show, "login.html", needs=None),
    Page("/me", account.me, "me.html"),
    Page("/audit", account.audit, "audit.html", needs=UserRole.ADMIN),
    Page("/c/{cluster}/", overview.show, "overview.html", live=True),
    Page("/c/{cluster}/problems", overview.problems, "problems.html", live=True),
    Page("/c/{cluster}/topics", topics.show, "topics.html", live=True),
    Page("/c/{cluster}/topics/{topic}", topic.show, "topic.html"),
    Page("/c/{cluster}/topics/{topic}/messages", messages.show, "messages.html"),
    Page("/c/{cluster}/topics/{topic}/messages/{id}", message.by_id, "message.html"),
    Page("/c/{cluster}/topics/{topic}/at/{broker}/{queue:int}/{offset:int}", message.at, "message.html"),
    Page("/c/{cluster}/topics/{topic}/tail", tail.show, "tail.html"),
    Page("/c/{cluster}/topics/{topic}/groups", topic.groups, "topic_groups.html"),
    Page("/c/{cluster}/topics/{topic}/route", topic.route, "topic_route.html"),
    Page("/c/{cluster}/topics/{topic}/producers", topic.producers, "topic_producers.html"),
    Page("/c/{cluster}/topics/{topic}/settings", topic.settings, "topic_settings.html"),
    Page("/c/{cluster}/topics/{topic}/lite", lite.show, "topic_lite.html"),
    Page("/c/{cluster}/topics/{topic}/lite/{lite}", lite.one, "lite_topic.html"),
    Page("/c/{cluster}/topics/{topic}/spark", spark.show, "topic_spark.html"),
    Page("/c/{cluster}/groups", groups.show, "groups.html", live=True),
    Page("/c/{cluster}/groups/{group}", group.show, "group.html"),
    Page("/c/{cluster}/groups/{group}/queues", group.queues, "group_queues.html"),
    Page("/c/{cluster}/groups/{group}/members", group.members, "group_members.html"),
    Page("/c/{cluster}/groups/{group}/offsets", group.offsets, "group_offsets.html"),
    Page("/c/{cluster}/groups/{group}/dlq", group.letters, "group_dlq.html"),
    Page("/c/{cluster}/groups/{group}/settings", group.settings, "group_settings.html"),
    Page("/c/{cluster}/dlq", groups.dead_letters, "dlq.html", live=True),
    Page("/c/{cluster}/brokers", brokers.show, "brokers.html", live=True),
    Page("/c/{cluster}/brokers/differences", brokers.differences, "brokers_differences.html"),
    Page("/c/{cluster}/brokers/replication", replication.show, "replication.html"),
    Page("/c/{cluster}/brokers/stores", stores.show, "stores.html", needs=UserRole.ADMIN),
    Page("/c/{cluster}/brokers/{name}/{id:int}", brokers.one, "broker.html"),
    Page("/c/{cluster}/nameservers", nameservers.show, "nameservers.html"),
    Page("/c/{cluster}/nameservers/diff", nameservers.differences, "nameservers_diff.html"),
    Page("/c/{cluster}/controllers", controllers.show, "controllers.html", live=True),
    Page("/c/{cluster}/clients", clients.show, "clients.html"),
    Page("/c/{cluster}/pipelines", pipelines.show, "pipelines.html", live=True),
    Page("/c/{cluster}/pipelines/{id}", pipelines.one, "pipeline.html"),
    Page("/c/{cluster}/access", access.show, "access.html", needs=UserRole.ADMIN),
    Page("/c/{cluster}/access/check", access.check, "access_check.html", needs=UserRole.ADMIN),
    Page("/c/{cluster}/find", find.show, "find.html"),
    Page("/c/{cluster}/do/{operation}", operation.form, "operation.html"),
)

STREAMS: dict[str, Callable[[Visit], Awaitable[Response]]] = {
    "/c/{cluster}/live": streams.ticks,
    "/c/{cluster}/topics/{topic}/tail/stream": tail.stream,
}
