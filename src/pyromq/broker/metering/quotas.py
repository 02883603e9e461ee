"""Requests that quotas delayed and refused."""

from pyromq.broker.flow.quotas import Quotas
from pyromq.metrics import Metrics

_LABELS = ("quota_of", "name", "quota")


def register_quotas(metrics: Metrics, quotas: Quotas) -> None:
    metrics.labelled_read_counter(
        "pyromq_quota_delayed_total", "Requests that a quota delayed.", lambda: quotas.delayed, _LABELS
    )
    metrics.labelled_read_counter(
        "pyromq_quota_refused_total", "Requests that a quota refused.", lambda: quotas.refused, _LABELS
    )
