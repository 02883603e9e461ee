"""Requests about the account files of access control 1.0; an administrator sends them."""

from collections.abc import Callable
from typing import Any

from pyromq.errors import ConfigError, Refused
from pyromq.protocol import json_body
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.access import (
    DeleteAccessConfig,
    GetAccessConfigVersion,
    GetAccessConfigVersionAnswer,
    PutAccessConfig,
    UpdateTrustedAddresses,
)
from pyromq.remoting.access.account_files import AccountFiles
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.routing import Caller, handles

# java: codes of 4.9, which later releases use for something else
_UPDATE_FAILED = 209
_DELETE_FAILED = 210
_UPDATE_ADDRESSES_FAILED = 211

_TEXTS = {
    "secretKey": "secret_key",
    "whiteRemoteAddress": "white_remote_address",
    "defaultTopicPerm": "default_topic_perm",
    "defaultGroupPerm": "default_group_perm",
}


class AccountRequests:
    def __init__(self, access: AccessRules, broker_name: str, cluster: str, address: str) -> None:
        self._access = access
        self._broker_name = broker_name
        self._cluster = cluster
        self._address = address

    def __repr__(self) -> str:
        return f"<AccountRequests {self._access!r}>"

    @handles(PutAccessConfig)
    async def put_account(self, request: PutAccessConfig, caller: Caller) -> None:
        self._require_administrator(caller)
        values: dict[str, Any] = {"accessKey": request.access_key, "admin": request.admin}
        values |= {key: text for key, name in _TEXTS.items() if (text := getattr(request, name)) is not None}
        for key, text in (("topicPerms", request.topic_perms), ("groupPerms", request.group_perms)):
            if text is not None:
                values[key] = [each.strip() for each in text.split(",") if each.strip()]
        await self._change(lambda files: files.put_account(values))

    @handles(DeleteAccessConfig)
    async def delete_account(self, request: DeleteAccessConfig, caller: Caller) -> None:
        self._require_administrator(caller)
        if request.access_key == caller.user:
            raise Refused(ResponseCode.NO_PERMISSION, "an administrator cannot delete itself")
        if not await self._change(lambda files: files.delete_account(request.access_key)):
            remark = f"The accessKey={request.access_key} does not exist"
            raise Refused(_DELETE_FAILED, remark)

    @handles(UpdateTrustedAddresses)
    async def update_trusted_addresses(self, request: UpdateTrustedAddresses, caller: Caller) -> None:
        self._require_administrator(caller)
        addresses = [each.strip() for each in request.global_white_addrs.split(",") if each.strip()]
        file = request.acl_file_full_path
        if not await self._change(lambda files: files.put_trusted_addresses(addresses, file)):
            raise Refused(_UPDATE_ADDRESSES_FAILED, f"{file} is not a file of accounts")

    @handles(GetAccessConfigVersion)
    def version(self, request: GetAccessConfigVersion, caller: Caller) -> GetAccessConfigVersionAnswer:
        files = self._access.accounts
        if files is None:
            raise self._off()
        versions = files.versions()
        main = versions.get(str(files.main))
        return GetAccessConfigVersionAnswer(
            version=json_body.encode(main).decode() if main is not None else "{}",
            all_acl_file_version=json_body.encode(versions).decode(),
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster,
        )

    async def _change(self, change: Callable[[AccountFiles], bool]) -> bool:
        try:
            return await self._access.change_accounts(change)
        except ConfigError as problem:
            raise Refused(_UPDATE_FAILED, str(problem)) from None

    def _require_administrator(self, caller: Caller) -> None:
        control = self._access.control
        if control is None or self._access.accounts is None:
            raise self._off()
        if not control.rules.is_administrator(caller.user):
            raise Refused(ResponseCode.NO_PERMISSION, "only an account with admin may change accounts")

    def _off(self) -> Refused:
        return Refused(ResponseCode.NO_PERMISSION, "this broker has no accounts: set aclEnable and aclFile")
