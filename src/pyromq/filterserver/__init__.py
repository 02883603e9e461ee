"""The filter server: it runs filters of consumers on whole messages, and passes on only what matches."""
