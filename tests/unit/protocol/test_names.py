"""Names that are derived from others."""

from pyromq.protocol.names import pop_retry_topics


def test_retries_of_popped_messages_lie_in_a_topic_of_the_group_and_the_topic() -> None:
    assert pop_retry_topics("orders", "g") == ("%RETRY%g_orders", "%RETRY%g+orders")
