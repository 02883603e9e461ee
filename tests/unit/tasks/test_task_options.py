"""Options of tasks: a bad one stops the start, and the error says where it was given."""

import pytest

from pyromq.errors import ConfigError
from pyromq.tasks.options import TaskOptions, split_task_options, task_options


def test_options_of_tasks_and_of_clients_are_told_apart() -> None:
    own, client = split_task_options({"invisible_s": 5, "namespace": "shop"}, "options of taskiq")
    assert own == TaskOptions(invisible_s=5.0)
    assert client == {"namespace": "shop"}


def test_texts_of_a_url_become_numbers() -> None:
    assert task_options({"invisible_s": "2.5", "queues": "3"}, TaskOptions, "url").queues == 3


@pytest.mark.parametrize("given", [{"invisible_s": 0}, {"queues": 0}, {"max_redeliveries": "many"}])
def test_a_bad_value_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="options of taskiq"):
        split_task_options(given, "options of taskiq")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'max_delay_s'"):
        split_task_options({"max_delay": 1}, "options of taskiq")
