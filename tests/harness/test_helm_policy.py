"""The policy of `make helm-check` names each way in which a pod is worse than it must be."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tools.helm import offences

LABELS = {"app": "broker"}
CONTAINER: dict[str, Any] = {
    "image": "pyromq:0.1.0",
    "args": ["broker"],
    "env": [{"name": "ADMIN_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "users", "key": "admin"}}}],
    "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "startupProbe": {"httpGet": {"path": "/health"}},
    "livenessProbe": {"httpGet": {"path": "/health"}},
    "readinessProbe": {"httpGet": {"path": "/ready"}},
}
POD: dict[str, Any] = {
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [CONTAINER],
}
OBJECTS: list[dict[str, Any]] = [
    {
        "kind": "StatefulSet",
        "metadata": {"name": "broker"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": POD},
        },
    },
    {"kind": "PodDisruptionBudget", "spec": {"selector": {"matchLabels": LABELS}}},
]

WRONG: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "may run as root": lambda pod, _: pod["securityContext"].update(runAsNonRoot=False),
    "can reach the API": lambda pod, _: pod.update(hostNetwork=True),
    "has privileges": lambda _, container: container["securityContext"].update(capabilities={}),
    "has no limit of memory": lambda _, container: container["resources"]["limits"].clear(),
    "without a version": lambda _, container: container.update(image="pyromq:latest"),
    "is probed at": lambda _, container: container["readinessProbe"]["httpGet"].update(path="/health"),
    "a password on its command line": lambda _, container: container["args"].append("-o password=x"),
    "not from a Secret": lambda _, container: container["env"][0].update(value="x", valueFrom={}),
}


def test_a_good_pod_has_no_offence() -> None:
    assert list(offences(OBJECTS)) == []


@pytest.mark.parametrize("offence", WRONG)
def test_a_bad_pod_is_named(offence: str) -> None:
    objects = deepcopy(OBJECTS)
    pod = objects[0]["spec"]["template"]["spec"]
    WRONG[offence](pod, pod["containers"][0])
    (found,) = offences(objects)
    assert offence in found


def test_several_brokers_without_a_budget_are_named() -> None:
    assert list(offences(OBJECTS[:1])) == ["broker has no PodDisruptionBudget"]
