"""Which roles the groups of a provider give."""

import pytest

from pyromq.console.security.openid import person_by_claims, roles_in
from pyromq.console.security.roles import Person, UserRole
from pyromq.console.settings import ConsoleSettings
from pyromq.errors import ConfigError

ROLES = "mq-admins=admin,mq-team=operator+bodies,dc=x=viewer"


def _person(groups: object, claim: str = "groups") -> Person | None:
    settings = ConsoleSettings(
        oidc_issuer="https://idp.example", oidc_client_id="c", oidc_roles=ROLES,
        oidc_roles_claim=claim,
    )  # fmt: skip
    return person_by_claims({"preferred_username": "ada", "groups": groups, "a": {"b": groups}}, settings)


@pytest.mark.parametrize("wrong", ["staff", "staff=king", "staff=admin+all", "=admin", "a=viewer,b"])
def test_a_role_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="oidcRoles="):
        roles_in(wrong)


def test_the_highest_role_counts_and_bodies_are_a_right_besides() -> None:
    assert _person(["mq-team", "mq-admins"]) == Person("ada", UserRole.ADMIN, reads_bodies=True)
    assert _person(["mq-admins"]) == Person("ada", UserRole.ADMIN, reads_bodies=False)
    assert _person("mq-team", "a.b") == Person("ada", UserRole.OPERATOR, reads_bodies=True)
    assert _person(["dc=x"]) == Person("ada", UserRole.VIEWER)
    for groups in ([], None, 7, ["others", 7], {"mq-admins": True}):
        assert _person(groups) is None


def test_a_claim_that_is_no_path_gives_no_role() -> None:
    assert _person(["mq-admins"], "groups.roles") is None
