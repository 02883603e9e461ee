"""What tests tell every JVM of Spark: none lives long enough to get back what optimizing its code costs."""

import os
from typing import Final

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_jvms_quick() -> None:
    """Those of programs as well that tests start as a user would: a demo, an example, a pipeline."""
    for variable in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(variable, QUICK_JVM)
