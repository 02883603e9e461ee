"""How a process reaches the cluster. A topic is not a queue of tasks, so its name stays as it is."""

from pyromq.tasks.link import TaskLink


class StreamLink(TaskLink):
    """Topics have the names that the application gives them."""

    def topic_of(self, queue: str) -> str:
        return queue
