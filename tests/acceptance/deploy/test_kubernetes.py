"""The manifests of deploy/kubernetes: as their schemas have it, and with the bridge that they configure. On no cluster."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bridge.config import Configuration, load
from bridge.security.password_file import Entry, hash_of, write_password_file
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificates import make
from tests.helpers.mosquitto import free_port, publish
from tests.helpers.patience import PATIENCE, eventually

CONTAINERFILE = (Path(__file__).parents[3] / "deploy" / "Containerfile").read_text(encoding="utf-8")

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
#: The oldest version that has all that is in them, and the newest whose schemas are at hand.
VERSIONS = ("1.29", kubernetes_validate.latest_version())

documents = [
    document
    for file in sorted(MANIFESTS.glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
objects = {(one["kind"], one["metadata"]["name"]): one for one in documents if "metadata" in one}


@pytest.fixture(scope="module")
def pod() -> Any:
    return objects["StatefulSet", "mqbridge"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: Any) -> Any:
    (one,) = pod["containers"]
    return one


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    file = tmp_path / "bridge.yaml"
    file.write_text(objects["ConfigMap", "mqbridge"]["data"]["bridge.yaml"], encoding="utf-8")
    return load(file)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key", objects, ids=lambda key: "-".join(key))
def test_a_manifest_is_as_its_schema(key: tuple[str, str], version: str) -> None:
    kubernetes_validate.validate(objects[key], version, strict=True)


def test_a_wrong_manifest_is_not() -> None:
    """So that the schemas are known to say anything."""
    wrong = {**objects["PodDisruptionBudget", "mqbridge"], "spec": {"maxUnavailible": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_kustomize_has_all_of_them_but_the_examples_of_secrets() -> None:
    (kustomization,) = (one for one in documents if one["kind"] == "Kustomization")
    files = {file.name for file in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml", "secret.yaml"}
    assert set(kustomization["resources"]) == files
    places = {one["metadata"].get("namespace") for one in objects.values() if one["kind"] != "Namespace"}
    assert places == {kustomization["namespace"]}
    assert ("Namespace", kustomization["namespace"]) in objects
    (image,) = kustomization["images"]
    assert image["name"] == objects["StatefulSet", "mqbridge"]["spec"]["template"]["spec"]["containers"][0]["image"]


def test_what_selects_pods_selects_those_of_the_bridge() -> None:
    labels = objects["StatefulSet", "mqbridge"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["StatefulSet", "mqbridge"]["spec"]["selector"]["matchLabels"],
        objects["PodDisruptionBudget", "mqbridge"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", "mqbridge"]["spec"]["podSelector"]["matchLabels"],
        objects["Service", "mqbridge"]["spec"]["selector"],
        objects["Service", "mqbridge-pods"]["spec"]["selector"],
    ]
    assert [one for one in selectors if one != labels] == []
    assert ("Service", objects["StatefulSet", "mqbridge"]["spec"]["serviceName"]) in objects


def test_ports_are_those_of_the_configuration(container: Any, configuration: Configuration) -> None:
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"mqtts": configuration.channels[0].port, "admin": configuration.admin.port}
    policy = objects["NetworkPolicy", "mqbridge"]["spec"]["ingress"]
    assert [port["port"] for rule in policy for port in rule["ports"]] == ["mqtts", "admin"]
    for name in ("mqbridge", "mqbridge-pods"):
        for port in objects["Service", name]["spec"]["ports"]:
            assert port["port"] == ports[port["targetPort"]]


def test_volumes_are_there_and_the_configuration_names_what_is_in_them(
    pod: Any, container: Any, configuration: Configuration
) -> None:
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    (claim,) = objects["StatefulSet", "mqbridge"]["spec"]["volumeClaimTemplates"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert mounts.keys() == volumes.keys() | {claim["metadata"]["name"]}
    assert ("ConfigMap", volumes["configuration"]["configMap"]["name"]) in objects
    assert container["args"] == ["run", f"{mounts['configuration']}/bridge.yaml"]
    (channel,) = configuration.channels
    (method,) = channel.authentication
    assert channel.tls is not None and configuration.queue_manager.type == "embedded"
    files = {"tls": (channel.tls.certificate_file, channel.tls.key_file), "secrets": (method.file,)}  # type: ignore[union-attr]
    for name, paths in files.items():
        secret = objects["Secret", volumes[name]["secret"]["secretName"]]["stringData"]
        assert {str(path) for path in paths} == {f"{mounts[name]}/{key}" for key in secret}
    assert str(configuration.queue_manager.data_directory) == mounts["data"]


def test_the_pod_is_restricted(pod: Any, container: Any) -> None:
    """By the Pod Security Standard of that name, which its namespace enforces; and its root is read-only."""
    labels = objects["Namespace", "mqbridge"]["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "restricted"}
    of_pod, of_container = pod["securityContext"], container["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert f"USER {of_pod['runAsUser']}:{of_pod['runAsGroup']}" in CONTAINERFILE
    assert of_container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {"configMap", "secret", "emptyDir"} >= {key for one in pod["volumes"] for key in one} - {"name"}


def test_the_volume_is_as_large_as_the_memory_can_make_use_of(container: Any) -> None:
    """Three times the memory ("Memory and disk" in docs/how-to/mq-administrator.md), all of which the pod gets."""
    (claim,) = objects["StatefulSet", "mqbridge"]["spec"]["volumeClaimTemplates"]
    memory, storage = container["resources"]["limits"]["memory"], claim["spec"]["resources"]["requests"]["storage"]
    assert memory.endswith("Gi") and storage.endswith("Gi")
    assert int(storage[:-2]) == 3 * int(memory[:-2])
    assert container["resources"]["requests"]["memory"] == memory


def test_clients_reach_a_bridge_that_rejects_new_messages() -> None:
    """It is not ready, and recovers when clients fetch their messages. There is no other bridge to connect to."""
    assert objects["StatefulSet", "mqbridge"]["spec"]["replicas"] == 1
    assert objects["Service", "mqbridge"]["spec"]["publishNotReadyAddresses"] is True


def test_it_has_longer_to_stop_than_the_bridge_takes(pod: Any, configuration: Configuration) -> None:
    assert pod["terminationGracePeriodSeconds"] > configuration.limits.shutdown_timeout


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeProcess]:
    """A bridge of the ConfigMap's configuration, with files of its own and free ports."""
    make(tmp_path)
    text = objects["ConfigMap", "mqbridge"]["data"]["bridge.yaml"]
    for place, here in (
        ("/run/secrets/mqbridge-tls/tls.crt", tmp_path / "server.pem"),
        ("/run/secrets/mqbridge-tls/tls.key", tmp_path / "server.key"),
        ("/run/secrets/mqbridge/clients.passwd", tmp_path / "clients.passwd"),
        ("/var/lib/mqbridge", tmp_path / "data"),
        ("port: 8883", "port: 0"),
        ("port: 9157", f"port: {free_port()}"),
        ("0.0.0.0", "127.0.0.1"),
    ):
        assert place in text
        text = text.replace(place, str(here))
    write_password_file(tmp_path / "clients.passwd", {"pump-7": Entry(hash_of("secret"))})
    one = BridgeProcess(tmp_path / "data", config=text)
    yield one.start()
    if one.running:
        one.stop()


def test_clients_and_probes_of_a_bridge_that_is_configured_so(
    bridge: BridgeProcess, container: Any, tmp_path: Path
) -> None:
    assert bridge.config is not None
    port = load(bridge.config).admin.port
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert (get["port"], get.keys()) == ("admin", {"path", "port"})

        def status(path: str = get["path"]) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", path)
            return connection.getresponse().status

        eventually(status, 200)
    tls = ("--cafile", str(tmp_path / "ca.pem"), "-h", "localhost", "-u", "pump-7", "-P", "secret")
    publish(bridge.port, "plant/state", "running", *tls, qos=1)


# Monitoring: custom resources of the Prometheus Operator, whose schemas are not in Kubernetes ---------------------------

MONITORING = MANIFESTS / "monitoring"


def test_prometheus_operator_gets_the_alerts() -> None:
    text = (MONITORING / "prometheusrule.yaml").read_text(encoding="utf-8")
    generated = subprocess.run(
        [sys.executable, "-c", "import rules; print(rules.prometheus_rule(), end='')"],
        cwd=MONITORING, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert text == generated, "run: python deploy/kubernetes/monitoring/rules.py"
    rule = yaml.safe_load(text)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((MANIFESTS.parent / "alerts.yaml").read_text(encoding="utf-8"))


def test_the_pod_monitor_selects_the_admin_port_of_the_pods(container: Any) -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text(encoding="utf-8"))
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    labels = objects["StatefulSet", "mqbridge"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    (relabeling,) = endpoint["relabelings"]
    assert relabeling == {"targetLabel": "job", "replacement": "mqbridge"}


def test_kustomize_has_the_monitoring_manifests() -> None:
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text(encoding="utf-8"))
    files = {file.name for file in MONITORING.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    assert kustomization["namespace"] == objects["StatefulSet", "mqbridge"]["metadata"]["namespace"]


# Helm ----------------------------------------------------------------------------------------------------------------

CHART = MANIFESTS.parent / "helm" / "mqbridge"
HELM = Path(__file__).parents[3] / "build" / "helm"
needs_helm = pytest.mark.skipif(not HELM.exists(), reason="Helm is not there: sh tests/helm.sh .venv/bin/python")


def rendered(*settings: str) -> dict[tuple[str, str], Any]:
    """The manifests of the chart with some settings, for a release named like the manifests of Kustomize."""
    command = [HELM, "template", "mqbridge", CHART, "--namespace", "mqbridge"]
    command += [f"--set={setting}" for setting in settings]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


def without_instance(value: Any) -> Any:
    """A manifest without the label of its release."""
    if isinstance(value, dict):
        return {key: without_instance(one) for key, one in value.items() if key != "app.kubernetes.io/instance"}
    return [without_instance(one) for one in value] if isinstance(value, list) else value


@needs_helm
def test_the_chart_is_well_formed() -> None:
    done = subprocess.run([HELM, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_helm
def test_the_chart_has_the_manifests_of_kustomize() -> None:
    expected = {key: one for key, one in objects.items() if key[0] not in ("Namespace", "Secret")}
    for file in ("podmonitor.yaml", "prometheusrule.yaml"):
        one = yaml.safe_load((MONITORING / file).read_text(encoding="utf-8"))
        expected[one["kind"], one["metadata"]["name"]] = one
    chart = without_instance(rendered("monitoring.enabled=true"))
    assert chart.keys() == expected.keys()
    for key, one in expected.items():
        if key[0] == "ConfigMap":
            assert yaml.safe_load(chart[key]["data"]["bridge.yaml"]) == yaml.safe_load(one["data"]["bridge.yaml"])
            continue
        if key[0] == "StatefulSet":
            (container,) = chart[key]["spec"]["template"]["spec"]["containers"]
            assert container.pop("image") == f"registry.example.com/mqbridge:{bridge_version()}"
            one = {**one, "spec": yaml.safe_load(yaml.safe_dump(one["spec"]))}
            del one["spec"]["template"]["spec"]["containers"][0]["image"]
        assert chart[key] == one


def bridge_version() -> str:
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"])


@needs_helm
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", [(), ("standby=true", "networkPolicy.enabled=false"), ("service.type=ClusterIP",)])
def test_the_chart_is_as_the_schemas(settings: tuple[str, ...], version: str) -> None:
    for one in rendered(*settings).values():
        kubernetes_validate.validate(one, version, strict=True)


def test_the_chart_has_the_version_of_the_bridge() -> None:
    from bridge import __version__

    assert bridge_version() == __version__
