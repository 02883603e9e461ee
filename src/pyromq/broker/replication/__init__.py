"""Replication between a master and its replicas: the log over the HA port, tables over requests."""
