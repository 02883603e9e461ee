"""Ready pipelines: small PySpark programs over format("rocketmq")."""
