from pyromq.security.signature import SigningKey

def is_signed_frame(
    header: bytes, is_binary: bool, body: bytes, key: SigningKey, *, is_full: bool
) -> bool: ...
