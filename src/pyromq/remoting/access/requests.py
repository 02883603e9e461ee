"""Requests about users, policies and accounts.

Only an administrator may change them, whatever rights to the cluster a policy gives: otherwise a user could
give itself more rights. Passwords are shown to administrators only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyromq.errors import ConfigError, Refused
from pyromq.protocol.catalogue import Answer, BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
    UserInfo,
)
from pyromq.remoting.access.control import AccessControl
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.routing import Caller, handles
from pyromq.security.users import (
    NO_ACL,
    Policies,
    PolicyType,
    User,
    UserRules,
    acl_info,
    change_between,
    changed_user,
    merged,
    policies_of,
    subject_name,
    user_info,
    user_of,
    without,
)


class AccessRequests:
    """Users and policies of access control 2.0."""

    def __init__(self, access: AccessRules) -> None:
        self._access = access

    def __repr__(self) -> str:
        return f"<AccessRequests {self._access!r}>"

    async def run(self) -> None:
        await self._access.run()

    # Users

    @handles(CreateUser)
    async def create_user(self, request: CreateUser, caller: Caller) -> Answer:
        self._require_administrator(caller)
        name = _user_name(request.username)

        def create(rules: UserRules) -> UserRules:
            if name in rules.users:
                raise Refused(ResponseCode.NO_PERMISSION, "The user is existed")  # java: the text
            return _with_user(rules, user_of(request.body, name))

        return await self._change(create, caller)

    @handles(UpdateUser)
    async def update_user(self, request: UpdateUser, caller: Caller) -> Answer:
        self._require_administrator(caller)
        name = _user_name(request.username)

        def update(rules: UserRules) -> UserRules:
            return _with_user(rules, changed_user(_existing(rules, name), request.body))

        return await self._change(update, caller)

    @handles(DeleteUser)
    async def delete_user(self, request: DeleteUser, caller: Caller) -> Answer:
        self._require_administrator(caller)
        name = _user_name(request.username)

        def delete(rules: UserRules) -> UserRules:
            users = {each: user for each, user in rules.users.items() if each != name}
            policies = {each: own for each, own in rules.policies.items() if each != name}
            if not any(UserRules(users).is_administrator(each) for each in users):
                raise Refused(ResponseCode.NO_PERMISSION, f"{name} is the last super user")
            return UserRules(users, policies, rules.cluster, rules.decides)

        return await self._change(delete, caller)

    @handles(GetUser)
    async def get_user(self, request: GetUser, caller: Caller) -> BodyAnswer[UserInfo | None]:
        shown = self._shown_to(caller)
        await self._access.check_files()  # another server with the same file may just have changed it
        user = self._access.users.users.get(_user_name(request.username))
        return BodyAnswer(body=shown(user) if user is not None else None)

    @handles(ListUsers)
    def list_users(self, request: ListUsers, caller: Caller) -> BodyAnswer[list[UserInfo] | None]:
        shown = self._shown_to(caller)
        users = self._access.users.users
        found = [shown(users[name]) for name in sorted(users) if (request.filter or "") in name]
        return BodyAnswer(body=found)

    def _shown_to(self, caller: Caller) -> Callable[[User], UserInfo]:
        """Administrators see the passwords as well: tools copy users from one server to another."""
        is_administrator = self._require_on().rules.is_administrator(caller.user)
        return lambda user: user_info(user, shows_passwords=is_administrator)

    # Policies

    @handles(CreateAcl)
    async def create_acl(self, request: CreateAcl, caller: Caller) -> Answer:
        return await self._put_acl(request.subject, request.body, caller)

    @handles(UpdateAcl)
    async def update_acl(self, request: UpdateAcl, caller: Caller) -> Answer:
        return await self._put_acl(request.subject, request.body, caller)

    async def _put_acl(self, subject: str | None, body: AclInfo, caller: Caller) -> Answer:
        """java: to create and to update are the same"""
        self._require_administrator(caller)

        def put(rules: UserRules) -> UserRules:
            name = _existing(rules, subject_name(subject or body.subject)).name
            return _with_policies(rules, name, merged(rules.policies.get(name, {}), policies_of(body)))

        return await self._change(put, caller)

    @handles(DeleteAcl)
    async def delete_acl(self, request: DeleteAcl, caller: Caller) -> Answer:
        self._require_administrator(caller)

        def delete(rules: UserRules) -> UserRules:
            name = _existing(rules, subject_name(request.subject)).name
            if not rules.policies.get(name):
                raise Refused(ResponseCode.NO_PERMISSION, NO_ACL)
            if not request.resource:
                return _with_policies(rules, name, {})
            policy_type = PolicyType((request.policy_type or PolicyType.CUSTOM).capitalize())
            return _with_policies(rules, name, without(rules.policies[name], policy_type, request.resource))

        return await self._change(delete, caller)

    @handles(GetAcl)
    def get_acl(self, request: GetAcl, caller: Caller) -> BodyAnswer[AclInfo | None]:
        self._require_on()
        with _checked():
            name = _existing(self._access.users, subject_name(request.subject)).name
        policies = self._access.users.policies.get(name)
        return BodyAnswer(body=acl_info(name, policies) if policies else None)

    @handles(ListAcls)
    def list_acls(self, request: ListAcls, caller: Caller) -> BodyAnswer[list[AclInfo] | None]:
        self._require_on()
        found = []
        for name, policies in sorted(self._access.users.policies.items()):
            if (request.subject_filter or "") not in f"User:{name}":
                continue
            wanted = {
                policy_type: tuple(e for e in entries if (request.resource_filter or "") in e.resource)
                for policy_type, entries in policies.items()
            }
            if kept := {policy_type: entries for policy_type, entries in wanted.items() if entries}:
                found.append(acl_info(name, kept))
        return BodyAnswer(body=found)

    async def _change(self, change: Callable[[UserRules], UserRules], caller: Caller) -> Answer:
        def audited(before: UserRules) -> UserRules:
            after = change(before)
            caller.changed = change_between(before, after)
            return after

        with _checked():
            return await self._access.change_users(audited)

    def _require_on(self) -> AccessControl:
        """Users cannot be prepared before access control is turned on."""
        control = self._access.control
        if control is None or not self._access.keeps_users:
            raise Refused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "this server has no users: set authenticationEnabled and initAuthenticationUser",
            )
        return control

    def _require_administrator(self, caller: Caller) -> None:
        if not self._require_on().rules.is_administrator(caller.user):
            raise Refused(ResponseCode.NO_PERMISSION, "only a super user may change users and policies")


def _with_user(rules: UserRules, user: User) -> UserRules:
    return UserRules({**rules.users, user.name: user}, rules.policies, rules.cluster, rules.decides)


def _with_policies(rules: UserRules, name: str, policies: Policies) -> UserRules:
    others = {each: own for each, own in rules.policies.items() if each != name}
    own = {name: policies} if policies else {}
    return UserRules(rules.users, others | own, rules.cluster, rules.decides)


def _existing(rules: UserRules, name: str) -> User:
    user = rules.users.get(name)
    if user is None:
        raise Refused(ResponseCode.NO_PERMISSION, f"The user is not exist: {name}")  # java: the text
    return user


def _user_name(name: str | None) -> str:
    if not name or not name.strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, "The username is blank")  # java: the text
    return name


@contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except (ConfigError, ValueError) as problem:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(problem)) from None
