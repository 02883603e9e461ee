"""A consumer as a member of its group: which queues are its own, how it joins, divides and leaves."""
