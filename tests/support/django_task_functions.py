"""Tasks of Django, for tests: import it after Django is set up."""

from typing import Any

from django_tasks import TaskContext, task

noted: list[Any] = []


@task
def note(text: Any) -> Any:
    noted.append(text)
    return text


@task
async def note_later(text: Any) -> Any:
    noted.append(text)
    return text


@task(takes_context=True)
def attempt(context: TaskContext) -> int:
    noted.append(context.attempt)
    return context.attempt


@task
def fail() -> None:
    raise ValueError("on purpose")


@task
def strange_value() -> Any:
    return object()
