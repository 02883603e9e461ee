"""`pyromq bench`: how fast a cluster is, PyroMQ's or Apache's, for the messages that you have."""
