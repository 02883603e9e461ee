"""Light queues: several queues for one record, at the price of an entry each."""
