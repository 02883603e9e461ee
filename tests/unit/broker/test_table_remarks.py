"""A start tells of tables that are gone though the store has messages, and of damage that a backup mended."""

from dataclasses import replace
from pathlib import Path

from tests.support.broker_parts import broker_parts

from pyromq.broker.flow.draft import Draft
from pyromq.broker.table_remarks import table_remarks
from pyromq.protocol.record import Host

BORN = Host.of("10.1.1.1", 4000).pack()


async def test_a_first_start_has_nothing_to_tell(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        files = [parts.store.table(name) for name in ("topics.json", "consumerOffset.json")]
        assert table_remarks(parts.store, parts.topics, parts.groups, files) == []


async def test_messages_of_topics_that_no_table_knows_are_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        for number in range(7):
            assert parts.appending.append(Draft(f"T{number}", 0, b"x", b"", 1, BORN)).is_ok
        parts.store.dispatch()
        parts.add_topic("T0")
        remarks = table_remarks(parts.store, parts.topics, parts.groups, [])
        assert len(remarks) == 1
        assert "topics.json lacks T1, T2, T3, T4, T5 and 1 more" in remarks[0]


async def test_groups_without_offsets_are_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        file = parts.store.table("consumerOffset.json")
        assert parts.groups.find("billing") is not None
        (remark,) = table_remarks(parts.store, parts.topics, parts.groups, [file])
        assert "consumerOffset.json is missing" in remark
        assert "billing" in remark
        parts.offsets.commit("billing", "T", 0, 5)
        parts.offsets.persist()
        assert table_remarks(parts.store, parts.topics, parts.groups, [file]) == []


async def test_damage_that_a_backup_made_good_is_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        file = parts.store.table("topics.json")
        parts.add_topic("A")
        parts.add_topic("B")
        file.path.write_bytes(b"")
        file.load(dict[str, object])
        (remark,) = table_remarks(parts.store, parts.topics, parts.groups, [file])
        assert "topics.json.bak was loaded instead" in remark


async def test_what_apaches_broker_has_compacted_is_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("Prices", attributes={"cleanup.policy": "COMPACTION"})
        assert table_remarks(parts.store, parts.topics, parts.groups, []) == []
        (parts.store.paths.root / "compaction" / "compactionLog" / "Prices" / "0").mkdir(parents=True)
        (remark,) = table_remarks(parts.store, parts.topics, parts.groups, [])
        assert "has messages of compacted topics (Prices) that only Apache's broker reads" in remark


async def test_compacted_topics_without_compaction_are_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("Prices", attributes={"cleanup.policy": "COMPACTION"})
        settings = replace(parts.store.settings, compaction_enabled=False)
        parts.store.apply_settings(settings)
        (remark,) = table_remarks(parts.store, parts.topics, parts.groups, [])
        assert "enableCompaction is off: messages of the compacted topics Prices expire" in remark


async def test_topics_of_batches_that_a_master_of_apache_had_are_told(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("Batches", attributes={"queue.type": "BatchCQ"})
        (remark,) = table_remarks(parts.store, parts.topics, parts.groups, [])
        assert "queue.type=BatchCQ) are not supported: Batches can be" in remark
