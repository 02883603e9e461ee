"""Django's tasks: of Django 6 itself, or of the package django-tasks, which has the same classes."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

HOME = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"

_base: Any = import_module(f"{HOME}.base")
_signals: Any = import_module(f"{HOME}.signals")

BaseTaskBackend: Any = import_module(f"{HOME}.backends.base").BaseTaskBackend
TaskResultDoesNotExist: Any = import_module(f"{HOME}.exceptions").TaskResultDoesNotExist
task_backends: Any = import_module(HOME).task_backends
Task, TaskContext, TaskError = _base.Task, _base.TaskContext, _base.TaskError
TaskResult, TaskResultStatus = _base.TaskResult, _base.TaskResultStatus
task_enqueued, task_started = _signals.task_enqueued, _signals.task_started
task_finished = _signals.task_finished
