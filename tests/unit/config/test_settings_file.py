import stat
from pathlib import Path

import pytest
from tests.conftest import ErrorLogs

from pyromq.config.settings_file import SettingsFile
from pyromq.errors import StoreError


async def test_a_change_replaces_its_line_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("# für uns\nmaxMessageSize=1\nmystery=7\n".encode())
    file = SettingsFile(path)
    await file.save({"maxMessageSize": "2"})
    await file.close()
    assert path.read_bytes() == "# für uns\nmaxMessageSize=2\nmystery=7\n".encode()


async def test_a_file_with_a_byte_order_mark_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"\xef\xbb\xbfmaxMessageSize=1\n")
    file = SettingsFile(path)
    await file.save({"maxMessageSize": "2"})
    await file.close()
    assert path.read_bytes() == b"\xef\xbb\xbfmaxMessageSize=2\n"


async def test_a_file_that_only_its_owner_may_read_stays_like_that(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text('initAuthenticationUser={"username":"admin","password":"secret"}\n')
    path.chmod(0o600)
    file = SettingsFile(path)
    await file.save({"a": "1"})
    await file.close()
    for name in ("broker.conf", "broker.conf.bak"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


async def test_an_edit_by_hand_since_the_last_change_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    file = SettingsFile(path)
    await file.save({"a": "1"})
    path.write_text("# by hand\na=9\n")
    await file.save({"b": "2"})
    await file.close()
    assert path.read_text() == "# by hand\na=9\nb=2\n"


@pytest.mark.parametrize("broken", ["a=\\u12\n", None])
async def test_a_change_that_could_not_be_written_is_written_with_the_next(
    tmp_path: Path, broken: str | None, error_logs: ErrorLogs
) -> None:
    path = tmp_path / "broker.conf"
    if broken is None:
        path.mkdir()
    else:
        path.write_text(broken)
    file = SettingsFile(path)
    with pytest.raises(StoreError, match=r"broker\.conf was not written"):
        await file.save({"a": "1"})
    error_logs.expect("could not write file=")
    path.rmdir() if broken is None else path.unlink()
    await file.save({"b": "2"})
    await file.close()
    assert path.read_text() == "a=1\nb=2\n"
