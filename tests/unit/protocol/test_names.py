"""Names that are derived from others."""

from pyromq.protocol import names
from pyromq.protocol.names import pop_retry_topics


def test_retries_of_popped_messages_lie_in_a_topic_of_the_group_and_the_topic() -> None:
    assert pop_retry_topics("orders", "g") == ("%RETRY%g_orders", "%RETRY%g+orders")


def test_a_light_queue_says_which_lite_topic_it_belongs_to() -> None:
    assert names.lite_queue("parent", "a-1_B") == "%LMQ%$parent$a-1_B"
    assert names.lite_parts("%LMQ%$parent$a-1_B") == ("parent", "a-1_B")
    for other in ("%LMQ%plain", "%LMQ%$parent", "%LMQ%$parent$", "%LMQ%$$a", "%LMQ%$parent$a$b", "parent"):
        assert names.lite_parts(other) is None


def test_the_name_of_a_lite_topic_has_letters_digits_and_two_signs() -> None:
    assert names.lite_topic_problem("a-1_B") is None
    for bad in ("", "a b", "a$b", "ä", "a%", "x" * 65, 7):
        assert names.lite_topic_problem(bad) is not None, bad
