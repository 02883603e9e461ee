"""Forms: urlencoded or JSON, and the token of the session in either."""

from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pyromq.console.security.origin import TOKEN_FIELD, TOKEN_HEADER

_MAX_FIELDS = 1000


async def read_form(request: Request) -> dict[str, str]:
    """The fields that were sent; 400 for anything but a form or a JSON object of plain values."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        try:
            sent = msgspec.json.decode(body, type=dict[str, str | int | float | bool | None])
        except msgspec.MsgspecError as problem:
            raise HTTPException(400, f"the body is not a JSON object of plain values: {problem}") from None
        return {key: _text(value) for key, value in sent.items() if value is not None}
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise HTTPException(415, f"the body is {kind}; expected a form or JSON")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as problem:
        raise HTTPException(400, f"the body is not a form: {problem}") from None
    # Browsers send every end of a line that somebody typed as two characters.
    return {key: value.replace("\r\n", "\n") for key, value in fields}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def sent_token(request: Request, form: dict[str, str]) -> str | None:
    return form.get(TOKEN_FIELD) or request.headers.get(TOKEN_HEADER)
