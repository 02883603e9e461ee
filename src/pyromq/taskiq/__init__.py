"""Taskiq on RocketMQ: `broker = TaskiqBroker("127.0.0.1:9876").with_result_backend(TaskiqResults(…))`.

Needs `pyromq[taskiq]`. `docs/howto/taskiq.md` says what can be set and what differs from other brokers.
"""

from pyromq.taskiq.broker import TaskiqBroker
from pyromq.taskiq.results import TaskiqResults
from pyromq.taskiq.schedules import TaskiqSchedules

__all__ = ["TaskiqBroker", "TaskiqResults", "TaskiqSchedules"]
