"""One row for each message whose transaction has ended: by it a broker learns how."""

from typing import Any

from django.db import models


class OutboxRow(models.Model):  # type: ignore[misc]  # Django has no types
    """Its key decides a race: the transaction that sends, or the check that gives it up, writes it first."""

    objects: Any
    message_id = models.CharField(max_length=64, primary_key=True)
    is_sent = models.BooleanField()
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        db_table = "pyromq_outbox"
