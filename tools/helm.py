"""`make helm-check`: the chart of deploy/helm, rendered by Helm, checked by kubeconform and a policy of ours.

python -m tools.helm (installs what is missing below build/helm, where it may: helm and kubeconform by
Go, the schemas of Kubernetes by pip)

Exit status 3 says that the tools cannot be had here and nothing was checked; 1 that the chart is wrong.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from tests.integration.examples.test_deploy_files import check_call
from tests.support.places import ROOT

UNAVAILABLE: Final = 3
CHART: Final = ROOT / "deploy" / "helm" / "pyromq"
WORK: Final = ROOT / "build" / "helm"
KUBERNETES: Final = "1.33.0"
TOOLS: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
SCHEMAS: Final = "kubernetes-validate==1.33.0"
VARIANTS: Final = {
    "default": (),
    "tls": ("tls.existingSecret=certificates", "serviceMonitor.enabled=true"),
    "alone": ("tls.existingSecret=certificates", "broker.replicas=1", "broker.groups={broker-a,broker-b}"),
    "open": ("access.enabled=false", "broker.settings.fileReservedTime=24"),
}
"""By name: what is set. Each is rendered and checked."""
_INSTALL_S: Final = 1800


class Unavailable(Exception):
    """Something is missing; the text says what."""


def tool(name: str) -> str:
    """Its path; Go builds it if it is not installed."""
    if (found := shutil.which(name, path=f"{WORK / 'bin'}:{os.environ['PATH']}")) is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"there is neither {name} nor Go, which could build it")
    environment = os.environ | {"GOBIN": str(WORK / "bin")}
    _install([go, "install", TOOLS[name]], environment)
    return str(WORK / "bin" / name)


def schemas() -> Path:
    """A directory with the schemas of Kubernetes, each in one file: kubeconform resolves no others."""
    made = WORK / "schemas"
    if made.exists():
        return made
    package = WORK / "kubernetes-validate"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(package), SCHEMAS]
    _install(pip, dict(os.environ))
    source = package / "kubernetes_validate" / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
    elsewhere = "/api/_definitions.json#"
    shared = json.loads((source / "_definitions.json").read_text().replace(elsewhere, "#"))["$defs"]
    fresh = WORK / "schemas.new"
    fresh.mkdir(parents=True, exist_ok=True)
    for name in ("service-v1", "secret-v1", "statefulset-apps-v1", "poddisruptionbudget-policy-v1"):
        schema = json.loads((source / f"{name}.json").read_text().replace(elsewhere, "#"))
        (fresh / f"{name}.json").write_text(json.dumps(schema | {"$defs": shared}))
    fresh.rename(made)
    return made


def _install(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def rendered(assignments: tuple[str, ...]) -> str:
    sets = [word for each in assignments for word in ("--set", each)]
    command = [tool("helm"), "template", "mq", str(CHART), "--kube-version", KUBERNETES, *sets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def nonconforming(text: str) -> str:
    """What kubeconform says against it."""
    location = f"{schemas()}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    # The schema of a ServiceMonitor belongs to the operator of Prometheus.
    options = ["-strict", "-skip", "ServiceMonitor", "-schema-location", location]
    command = [tool("kubeconform"), *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def offences(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Our policy: pods without privileges, limits, probes, budgets, and secrets only where they belong."""
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    budgets = [each["spec"]["selector"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    for each in sets:
        name, spec = each["metadata"]["name"], each["spec"]
        pod = spec["template"]["spec"]
        if not spec["template"]["metadata"]["labels"].items() >= spec["selector"]["matchLabels"].items():
            yield f"{name} does not select its pods"
        if spec["replicas"] > 1 and spec["selector"] not in budgets:
            yield f"{name} has no PodDisruptionBudget"
        context = pod["securityContext"]
        if not context["runAsNonRoot"] or context["seccompProfile"]["type"] != "RuntimeDefault":
            yield f"{name} may run as root, or without seccomp"
        if pod["automountServiceAccountToken"] or any(pod.get(key) for key in ("hostNetwork", "hostPID")):
            yield f"{name} can reach the API or the host"
        for container in pod["containers"]:
            yield from _offences_of(container, name)


def _offences_of(container: dict[str, Any], name: str) -> Iterator[str]:
    context = container["securityContext"]
    is_tight = context["readOnlyRootFilesystem"] and context["capabilities"] == {"drop": ["ALL"]}
    if context["allowPrivilegeEscalation"] or not is_tight:
        yield f"{name} has privileges"
    if "memory" not in container["resources"]["limits"] or "cpu" not in container["resources"]["requests"]:
        yield f"{name} has no limit of memory, or asks for no CPU"
    if container["image"].endswith((":", ":latest")) or ":" not in container["image"]:
        yield f"{name} runs an image without a version"
    probes = {
        key: container[f"{key}Probe"]["httpGet"]["path"] for key in ("startup", "liveness", "readiness")
    }
    if probes != {"startup": "/health", "liveness": "/health", "readiness": "/ready"}:
        yield f"{name} is probed at {probes}"
    if any("assword" in word for word in container["args"]):
        yield f"{name} has a password on its command line"
    for variable in container["env"]:
        if variable["name"].endswith("_PASSWORD") and "secretKeyRef" not in variable.get("valueFrom", {}):
            yield f"{name} has a password that is not from a Secret"


def wrong_calls(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Programs, options and settings that do not exist."""
    for each in objects:
        if each["kind"] != "StatefulSet":
            continue
        for container in each["spec"]["template"]["spec"]["containers"]:
            program, *arguments = container["args"]
            try:
                check_call(f"mq{program}", arguments)
            except AssertionError as problem:
                yield str(problem)


def main() -> int:
    found: list[str] = []
    try:
        for name, assignments in VARIANTS.items():
            text = rendered(assignments)
            objects = [each for each in yaml.safe_load_all(text) if each]
            problems = [*offences(objects), *wrong_calls(objects), *filter(None, [nonconforming(text)])]
            sys.stdout.write(f"helm-check: {name}: {len(objects)} objects, {len(problems)} problems\n")
            found += [f"{name}: {each}" for each in problems]
    except Unavailable as reason:
        sys.stderr.write(f"helm-check: nothing was checked: {reason}\n")
        return UNAVAILABLE
    sys.stderr.write("".join(f"{each}\n" for each in found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
