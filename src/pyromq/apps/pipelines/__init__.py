"""`pyromq pipeline`: Spark jobs over topics, each with its progress on stderr and a summary on stdout."""
