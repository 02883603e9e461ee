"""How Django knows this package."""

from django.apps import AppConfig


class PyromqConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "pyromq.django"
    label = "pyromq"
    default_auto_field = "django.db.models.BigAutoField"
