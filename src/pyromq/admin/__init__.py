"""Operations on a whole cluster as functions, over the wire only; strangers to the servers' code."""
