"""Tables of very many names grow bit by bit."""

from pyromq.nameserver.bucket_dict import BucketDict


def test_a_large_table_moves_the_entries_of_one_bucket_at_a_time() -> None:
    table: BucketDict[None] = BucketDict(max_first=100, bucket_entries=10)
    homes: dict[str, int] = {}
    for number in range(1_500):
        table[f"t{number}"] = None
        before, homes = homes, {name: id(bucket) for bucket in table._buckets for name in bucket}
        moved = [name for name, home in before.items() if homes[name] != home]
        assert len(moved) < 80, "a bucket has 10 names on average, 20 before it is divided"
    assert len(table.first) == 101


def test_an_emptied_table_gives_its_memory_back() -> None:
    table: BucketDict[None] = BucketDict(max_first=1_000, bucket_entries=100)
    for number in range(5_000):
        table[f"t{number}"] = None
    for number in range(5_000):
        table.pop(f"t{number}")
    assert all(bucket.__sizeof__() == {}.__sizeof__() for bucket in table._buckets)
