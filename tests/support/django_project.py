"""Django can be configured once in a process: this is the project of all tests."""

import tempfile
from functools import cache
from pathlib import Path


@cache
def set_up() -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    path = Path(tempfile.mkdtemp()) / "db.sqlite3"
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": path,
                "OPTIONS": {"timeout": 0.05},
            }
        },
        INSTALLED_APPS=["pyromq.django", "django_tasks"],
        TASKS={"default": {"BACKEND": "pyromq.django.tasks.RocketTasks", "QUEUES": ["default", "mail"]}},
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
