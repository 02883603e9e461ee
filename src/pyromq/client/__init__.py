"""Producers and consumers, for our brokers and for Apache's."""

import logging

# As libraries do: nothing is printed unless the application sets up logging.
logging.getLogger("pyromq").addHandler(logging.NullHandler())
