"""A consumer as a member of its group: it joins, rebalances, holds its assigned queues, and leaves."""
