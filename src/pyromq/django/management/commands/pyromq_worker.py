"""`manage.py pyromq_worker`: runs the tasks of a backend until a signal stops it."""

import os
import signal
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pyromq.chance import token
from pyromq.django.task_api import task_backends
from pyromq.django.task_worker import DjangoWorker
from pyromq.django.tasks import RocketTasks, TaskConnection
from pyromq.errors import TransportError


class Command(BaseCommand):  # type: ignore[misc]
    help = "Run tasks of Django from RocketMQ. SIGTERM and SIGINT let running tasks end."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--backend", default="default", help="Name in TASKS; default: default.")
        parser.add_argument(
            "--queue", action="append", dest="queues", help="Read this queue; default: all of the backend."
        )
        parser.add_argument("--threads", type=int, default=4, help="Tasks at the same time; default: 4.")
        parser.add_argument("--worker-id", default=None, help="Default: host, process and a random part.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["backend"] not in task_backends.settings:
            raise CommandError(
                f"--backend {options['backend']}: TASKS has {', '.join(task_backends.settings)}"
            )
        backend = task_backends[options["backend"]]
        if not isinstance(backend, RocketTasks):
            raise CommandError(f"TASKS[{options['backend']!r}] is {type(backend).__name__}, not RocketTasks")
        queues = options["queues"] or sorted(backend.queues)
        if unknown := sorted(set(queues) - backend.queues) if backend.queues else []:
            raise CommandError(f"--queue {unknown[0]}: the backend has {', '.join(sorted(backend.queues))}")
        if not queues:
            raise CommandError("name a --queue: the backend has no list of QUEUES")
        if options["threads"] < 1:
            raise CommandError(f"--threads {options['threads']}: at least 1")
        worker_id = options["worker_id"] or f"{socket.gethostname()}-{os.getpid()}-{token(4)}"
        try:
            worker = DjangoWorker(backend, queues, options["threads"], worker_id)
        except TransportError as problem:
            raise CommandError(f"the cluster cannot be reached: {problem}") from problem
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        self.stdout.write(f"{worker_id} runs tasks of {', '.join(queues)}")
        try:
            worker.run()
        finally:
            TaskConnection.close_all()
