"""Ready pipelines: small PySpark programs over format("rocketmq"), each a function and a command."""
