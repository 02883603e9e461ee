"""The Huffman code of HPACK (RFC 7541, appendix B), decoded byte by byte.

The code is canonical, so the lengths of its words say everything. A table of (state, byte) → (state, letters)
is filled as bytes are met: it stays small, because header values use few letters.
"""

from functools import cache

from pyromq.errors import RemoteProtocolError

LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b080606060505"
    "050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605"
    "06050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717171817181816171817"
    "1717171516171617171816151416161717151716161815161717151516151716171714161616171616171a1a141316171619"
    "1a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c"
    "1b1b1b1b1b1a1e"
)
"""The number of bits of each letter, and of the end of a string, which is letter 256."""

_END = 256
_MAX_PADDING_BITS = 7


@cache
def codes() -> list[tuple[int, int]]:
    """Code word and number of bits of every letter."""
    words = [(0, 0)] * len(LENGTHS)
    word = bits = 0
    for length, letter in sorted((length, letter) for letter, length in enumerate(LENGTHS)):
        word <<= length - bits
        bits = length
        words[letter] = (word, bits)
        word += 1
    return words


def _build_tree() -> tuple[list[list[int]], list[int]]:
    """Inner nodes: two followers each, a letter as its complement; and which nodes may end a string."""
    nodes = [[0, 0]]
    for letter, (word, bits) in enumerate(codes()):
        node = 0
        for position in range(bits - 1, 0, -1):
            side = word >> position & 1
            if not nodes[node][side]:
                nodes.append([0, 0])
                nodes[node][side] = len(nodes) - 1
            node = nodes[node][side]
        nodes[node][word & 1] = ~letter
    # Padding is the beginning of the end: up to seven ones.
    ends = [0]
    for _ in range(_MAX_PADDING_BITS):
        ends.append(nodes[ends[-1]][1])
    return nodes, ends


NODES, ENDS = _build_tree()


@cache
def _step(node: int, byte: int) -> tuple[int, bytes]:
    letters = bytearray()
    for position in range(7, -1, -1):
        follower = NODES[node][byte >> position & 1]
        if follower < 0:
            if ~follower == _END:
                raise RemoteProtocolError("a Huffman-coded header contains the end of a string")
            letters.append(~follower)
            follower = 0
        node = follower
    return node, bytes(letters)


def decode(data: bytes) -> bytes:
    """Raises RemoteProtocolError for bytes that no encoder writes."""
    node = 0
    pieces = []
    for byte in data:
        node, letters = _step(node, byte)
        pieces.append(letters)
    if node not in ENDS:
        raise RemoteProtocolError("a Huffman-coded header ends within a letter")
    return b"".join(pieces)
