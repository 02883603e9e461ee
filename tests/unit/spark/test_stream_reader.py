"""A stream's reader at the end of its query: Spark hangs up, and its worker complains to nobody."""

import io
import sys

import pytest
from pyspark.sql.types import StructType

from pyromq.spark.options import read_options
from pyromq.spark.stream_reader import StreamReader


@pytest.mark.parametrize(
    ("problem", "is_told"), [(EOFError(), False), (BrokenPipeError(), False), (OSError("no such host"), True)]
)
def test_a_reader_complains_unless_spark_has_hung_up(
    problem: Exception, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    options = read_options({"namesrv": "127.0.0.1:1", "subscribe": "Orders"}, streaming=True)
    reader = StreamReader(options, StructType([]))

    def work() -> None:
        """As pyspark's worker does it."""
        try:
            raise problem
        finally:
            reader.stop()

    with pytest.raises(type(problem)):
        work()
    sys.stderr.write("a traceback")
    assert bool(said.getvalue()) == is_told
