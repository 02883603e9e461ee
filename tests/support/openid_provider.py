"""A provider of OpenID Connect over real HTTP: authlib's own server side, with one client and one user."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any
from unittest.mock import patch

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, Response, jsonify, request
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import make_server

CLIENT, SECRET = "console", "s3cret"


class _Client:
    def __init__(self, redirect_uri: str) -> None:
        self.client_id, self._redirect_uri = CLIENT, redirect_uri

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return self._redirect_uri

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self._redirect_uri

    def check_client_secret(self, secret: str) -> bool:
        return secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class _Code:
    def __init__(self, payload: Any, user: Mapping[str, Any]) -> None:
        self.user = user
        self.redirect_uri, self.scope = payload.redirect_uri, payload.scope
        self.nonce: str | None = payload.data.get("nonce")
        self.code_challenge = payload.data.get("code_challenge")
        self.code_challenge_method = payload.data.get("code_challenge_method")

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return str(self.scope)

    def get_nonce(self) -> str | None:
        return self.nonce

    def get_auth_time(self) -> None:
        return None

    get_acr = get_amr = get_auth_time


class OpenIdProvider:
    """`user` has the claims of whoever logs in; None refuses. `claims` change those of the provider."""

    def __init__(self, redirect_uri: str) -> None:
        self.user: Mapping[str, Any] | None = {}
        self.claims: dict[str, Any] = {}
        self.in_userinfo: dict[str, Any] = {}
        self.asks_first = False
        """Whether it shows a page before it leads back, as real ones do."""
        self.new_key()
        self._client = _Client(redirect_uri)
        self._codes: dict[str, _Code] = {}
        self._tokens: dict[str, Mapping[str, Any]] = {}
        app = Flask("provider")
        server = AuthorizationServer(app, lambda client_id: self._found(client_id), self._keep_token)
        server.register_grant(_grant(self), [_extension(self), CodeChallenge(required=True)])

        @app.get("/.well-known/openid-configuration")
        def discovery() -> Any:
            return jsonify(
                {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/jwks",
                    "userinfo_endpoint": f"{self.url}/userinfo",
                }
            )

        @app.get("/authorize")
        def authorize() -> Any:
            if self.asks_first and "agreed" not in request.args:
                return f'<a href="{escape(request.full_path)}&amp;agreed=1">I agree</a>'
            try:
                grant = server.get_consent_grant(end_user=self.user)
            except OAuth2Error as problem:
                return Response(str(problem), 400)
            return server.create_authorization_response(grant_user=self.user, grant=grant)

        @app.get("/favicon.ico")
        def picture() -> Any:
            return Response(status=204)

        @app.post("/token")
        def token() -> Any:
            return server.create_token_response()

        @app.get("/jwks")
        def jwks() -> Any:
            return jsonify(self.keys.as_dict(private=False))

        @app.get("/userinfo")
        def userinfo() -> Any:
            user = self._tokens[request.headers["Authorization"].removeprefix("Bearer ")]
            return jsonify({**user, **self.in_userinfo})

        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def allow(self, redirect_uri: str) -> None:
        """Where the client may be led back to."""
        self._client = _Client(redirect_uri)

    def new_key(self) -> None:
        self.keys = KeySet([RSAKey.generate_key(2048, auto_kid=True)])

    def _found(self, client_id: str) -> _Client | None:
        return self._client if client_id == CLIENT else None

    def _keep_token(self, token: Mapping[str, Any], asked: Any) -> None:
        self._tokens[token["access_token"]] = asked.user

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What the grant keeps

    def put(self, code: str, payload: Any, user: Mapping[str, Any]) -> None:
        self._codes[code] = _Code(payload, user)

    def find(self, code: str) -> _Code | None:
        return self._codes.get(code)

    def drop(self, used: _Code) -> None:
        self._codes = {code: each for code, each in self._codes.items() if each is not used}


def _grant(provider: OpenIdProvider) -> type:
    class Grant(AuthorizationCodeGrant):  # type: ignore[misc]
        def save_authorization_code(self, code: str, asked: Any) -> None:
            provider.put(code, asked.payload, asked.user)

        def query_authorization_code(self, code: str, client: Any) -> _Code | None:
            return provider.find(code)

        def delete_authorization_code(self, code: _Code) -> None:
            provider.drop(code)

        def authenticate_user(self, code: _Code) -> Mapping[str, Any]:
            return code.user

    return Grant


def _extension(provider: OpenIdProvider) -> Any:
    class Extension(OpenIDCode):  # type: ignore[misc]
        def exists_nonce(self, nonce: str, asked: Any) -> bool:
            return False

        def resolve_client_private_key(self, client: Any) -> Any:
            return provider.keys.keys[0]

        def get_encode_header(self, client: Any) -> dict[str, Any]:
            return {"alg": "RS256", "kid": provider.keys.keys[0].kid}

        def get_client_claims(self, client: Any) -> dict[str, Any]:
            return {"iss": provider.url, "aud": [CLIENT]}

        def generate_user_info(self, user: Mapping[str, Any], scope: str) -> dict[str, Any]:
            return {**user, **provider.claims}

    return Extension()


@contextmanager
def openid_provider(redirect_uri: str) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(redirect_uri)
    thread = threading.Thread(target=provider.run)
    # It would refuse requests without TLS, even of this machine.
    with patch.dict(os.environ, AUTHLIB_INSECURE_TRANSPORT="1"):
        thread.start()
        try:
            yield provider
        finally:
            provider.stop()
            thread.join()
