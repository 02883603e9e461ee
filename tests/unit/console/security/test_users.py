import os
from pathlib import Path

import pytest
from tests.support.console_browser import CHEAP_HASHES

from pyromq.console.security.roles import Person, UserRole, role_of
from pyromq.console.security.users import Users
from pyromq.errors import ConfigError

PASSWORD = "correct horse battery"


def test_a_user_is_found_by_name_and_password_alone(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    users.put("ada", PASSWORD, UserRole.OPERATOR, reads_bodies=True, names=("orders-*",))
    expected = Person("ada", UserRole.OPERATOR, True, ("orders-*",))
    assert users.check("ada", PASSWORD) == expected
    assert users.check("ada", PASSWORD + "!") is None
    assert users.check("bob", PASSWORD) is None
    assert users.check("", "") is None
    assert Users(tmp_path / "users.json").load().check("ada", PASSWORD) == expected


def test_the_file_holds_no_password_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "home" / "users.json"
    password = Users(path).make_first()
    assert password not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Users(path).load().check("admin", password) == Person("admin", UserRole.ADMIN, True)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    Users(path).make_first()
    os.chmod(path, 0o640)
    with pytest.raises(ConfigError, match="expected mode 600"):
        Users(path).load()


@pytest.mark.parametrize("content", ["", "[]", '{"users": [{"name": "x"}]}', '{"users": 1}'])
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "users.json"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(ConfigError, match="a users file"):
        Users(path).load()


def test_short_passwords_and_unprintable_names_are_refused(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    with pytest.raises(ConfigError, match="at least 10 characters"):
        users.put("ada", "short", UserRole.VIEWER)
    with pytest.raises(ConfigError, match="printable"):
        users.put("a\nb", PASSWORD, UserRole.VIEWER)
    assert not len(users)


@CHEAP_HASHES
def test_a_removed_user_is_gone(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    users.put("ada", PASSWORD, UserRole.VIEWER)
    users.remove("ada")
    assert Users(tmp_path / "users.json").load().names() == []
    with pytest.raises(ConfigError, match="no users yet"):
        users.remove("ada")


def test_patterns_limit_the_names_that_a_person_may_change() -> None:
    person = Person("ada", UserRole.OPERATOR, names=("orders-*", "billing"))
    assert person.may_touch("orders-7")
    assert person.may_touch("billing")
    assert not person.may_touch("billing2")
    assert Person("bob", UserRole.VIEWER).may_touch("anything")


def test_roles_have_words() -> None:
    assert role_of("Admin") is UserRole.ADMIN
    with pytest.raises(ValueError, match="viewer, operator or admin"):
        role_of("root")


@CHEAP_HASHES
def test_a_changed_file_is_read_again_and_says_who_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    running, elsewhere = Users(path), Users(path)
    for name in ("ada", "bob", "cay"):
        elsewhere.put(name, PASSWORD, UserRole.VIEWER)
    running.load()
    assert running.read_again() == set()
    elsewhere.put("ada", PASSWORD, UserRole.ADMIN)
    elsewhere.remove("bob")
    elsewhere.put("dan", PASSWORD, UserRole.VIEWER)
    assert running.read_again() == {"ada", "bob"}
    assert running.person("ada") == Person("ada", UserRole.ADMIN)
    assert running.names() == ["ada", "cay", "dan"]
    assert running.read_again() == set()


@pytest.mark.parametrize("damage", ["broken", "open to others", "gone"])
@CHEAP_HASHES
def test_a_file_that_cannot_be_read_again_changes_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "users.json"
    users = Users(path)
    users.put("ada", PASSWORD, UserRole.VIEWER)
    if damage == "broken":
        path.write_text("{}}")
    elif damage == "gone":
        path.unlink()
    else:
        path.write_text(path.read_text() + "\n")
        path.chmod(0o640)
    assert users.read_again() == set()
    assert users.names() == ["ada"]
