"""`pyromq pipeline`: Spark jobs over topics; progress goes to stderr, a summary to stdout."""
