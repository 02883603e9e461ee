"""A controller in the process of a name server: both read the same file, each has its own port."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyromq.config.loading import Layer, Loaded, environment_layers, load
from pyromq.controller.settings import ControllerSettings
from pyromq.errors import ConfigError
from pyromq.nameserver.settings import NameServerSettings

_NAME_SERVERS_OWN = {"listenPort"}


def load_both(layers: Sequence[Layer]) -> tuple[Loaded[NameServerSettings], Loaded[ControllerSettings]]:
    """Each key goes to the part that has it, or to both; an unknown one to the name server."""
    own = [replace(layer, values=_name_servers(layer.values)) for layer in layers]
    theirs = [replace(layer, values=_controllers(layer.values), quiet=True) for layer in layers]
    controller = load(ControllerSettings, [*theirs, *environment_layers(ControllerSettings, os.environ)])
    if not controller.settings.all_peers:
        raise ConfigError("controllerDLegerPeers", "", "id-host:port, because enableControllerInNamesrv=true")
    return load(NameServerSettings, own), controller


def _name_servers(values: Mapping[str, str]) -> dict[str, str]:
    return {
        key: text
        for key, text in values.items()
        if NameServerSettings.find(key) is not None or ControllerSettings.find(key) is None
    }


def _controllers(values: Mapping[str, str]) -> dict[str, str]:
    return {
        key: text
        for key, text in values.items()
        if key not in _NAME_SERVERS_OWN and ControllerSettings.find(key) is not None
    }
