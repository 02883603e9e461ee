"""The settings of the gRPC front."""

import pytest

from pyromq.errors import ConfigError
from pyromq.proxy.settings import ProxySettings


@pytest.mark.parametrize("key", ["denyByDefault", "authenticationEnabled", "aclEnable"])
def test_access_control_that_the_front_does_not_have_is_refused(key: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{key}=true: expected false: the front does not check its callers"
    ):
        ProxySettings().updated({key: "true"})
