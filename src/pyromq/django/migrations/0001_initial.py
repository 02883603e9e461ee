"""The table of the outbox."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    initial = True
    operations = (
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("message_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("is_sent", models.BooleanField()),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
            options={"db_table": "pyromq_outbox"},
        ),
    )
