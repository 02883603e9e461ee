"""Operations on a whole cluster, as functions. They use only the wire protocol, never a server's code."""
