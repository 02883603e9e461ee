"""Reading queues: subscriptions, pulls, held messages, offsets."""
