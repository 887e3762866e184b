"""The Helm chart matches the schemas of Kubernetes, and a bridge runs with its configuration. No cluster is used."""

from __future__ import annotations

import http.client
import re
import runpy
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificate_authority import make
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port, publish
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

DEPLOY = Path(__file__).parents[3] / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
#: The oldest version that has all fields that the manifests use, and the newest version with known schemas.
VERSIONS = ("1.29", kubernetes_validate.latest_version())

#: The chart with its default values.
MANIFESTS = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
objects = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in yaml.safe_load_all(MANIFESTS)}


@pytest.fixture(scope="module")
def pod() -> Any:
    return objects["StatefulSet", "mqbridge"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: Any) -> Any:
    (bridge_container,) = pod["containers"]
    return bridge_container


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    file = tmp_path / "bridge.yaml"
    file.write_text(objects["ConfigMap", "mqbridge"]["data"]["bridge.yaml"], encoding="utf-8")
    return load(file)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_match_the_schemas_of_kubernetes(version: str) -> None:
    for manifest in objects.values():
        kubernetes_validate.validate(manifest, version, strict=True)
    misspelled = {**objects["PodDisruptionBudget", "mqbridge"], "spec": {"maxUnavailible": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelled, version, strict=True)


def test_all_selectors_match_the_labels_of_the_pod() -> None:
    labels = objects["StatefulSet", "mqbridge"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["StatefulSet", "mqbridge"]["spec"]["selector"]["matchLabels"],
        objects["PodDisruptionBudget", "mqbridge"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", "mqbridge"]["spec"]["podSelector"]["matchLabels"],
        objects["Service", "mqbridge"]["spec"]["selector"],
        objects["Service", "mqbridge-pods"]["spec"]["selector"],
    ]
    assert [selector for selector in selectors if selector != labels] == []
    assert ("Service", objects["StatefulSet", "mqbridge"]["spec"]["serviceName"]) in objects


def test_ports_are_those_of_the_configuration(container: Any, configuration: Configuration) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"mqtt-8883": configuration.channels[0].port, "admin": configuration.admin.port}
    policy = objects["NetworkPolicy", "mqbridge"]["spec"]["ingress"]
    assert [port["port"] for rule in policy for port in rule["ports"]] == ["mqtt-8883", "admin"]
    for name in ("mqbridge", "mqbridge-pods"):
        for port in objects["Service", name]["spec"]["ports"]:
            assert port["port"] == ports[port["targetPort"]]


def test_the_configuration_refers_to_files_in_mounted_volumes(
    pod: Any, container: Any, configuration: Configuration
) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (claim,) = objects["StatefulSet", "mqbridge"]["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys() | {claim["metadata"]["name"]}
    assert ("ConfigMap", volumes["configuration"]["configMap"]["name"]) in objects
    assert container["args"] == ["run", f"{mounts['configuration']}/bridge.yaml"]
    (channel,) = configuration.channels
    (method,) = channel.authentication
    assert channel.tls is not None and configuration.queue_manager.type == "embedded"
    files = {"tls": (channel.tls.certificate_file, channel.tls.key_file), "secrets": (method.file,)}
    for name, paths in files.items():
        assert {str(path.parent) for path in paths if path is not None} == {mounts[name]}
    assert f"MQBRIDGE_DATA_DIR={mounts['data']}" in CONTAINERFILE
    assert configuration.control_socket is not None and str(configuration.control_socket.parent) == mounts["data"]


def test_the_pod_meets_the_restricted_security_standard(pod: Any, container: Any) -> None:
    """The pod meets the Pod Security Standard of that name, and its root file system is read-only."""
    of_pod, of_container = pod["securityContext"], container["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert f"USER {of_pod['runAsUser']}:{of_pod['runAsGroup']}" in CONTAINERFILE
    assert of_container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {"configMap", "secret", "emptyDir"} >= {key for volume in pod["volumes"] for key in volume} - {"name"}


def test_the_volume_is_large_enough_for_the_memory(container: Any) -> None:
    """Three times the memory ("Memory and disk" in docs/how-to/mq-administrator.md), all of which the pod gets."""
    (claim,) = objects["StatefulSet", "mqbridge"]["spec"]["volumeClaimTemplates"]
    memory, storage = container["resources"]["limits"]["memory"], claim["spec"]["resources"]["requests"]["storage"]
    assert memory.endswith("Gi") and storage.endswith("Gi")
    assert int(storage[:-2]) == 3 * int(memory[:-2])
    assert container["resources"]["requests"]["memory"] == memory


def test_clients_reach_a_bridge_that_rejects_new_messages() -> None:
    """The bridge is not ready, and recovers when clients fetch their messages. Clients cannot connect to another
    bridge.
    """
    assert objects["StatefulSet", "mqbridge"]["spec"]["replicas"] == 1
    assert objects["Service", "mqbridge"]["spec"]["publishNotReadyAddresses"] is True


def test_the_grace_period_of_the_pod_is_longer_than_the_stop_of_the_bridge(
    pod: Any, configuration: Configuration
) -> None:
    assert pod["terminationGracePeriodSeconds"] > configuration.limits.shutdown_timeout


def placed(text: str, files: Path, data_directory: Path) -> str:
    """Return the configuration of a ConfigMap with the files of a test and free ports."""
    for place, here in (
        ("/run/secrets/mqbridge-tls/tls.crt", files / "server.pem"),
        ("/run/secrets/mqbridge-tls/tls.key", files / "server.key"),
        ("/run/secrets/mqbridge/clients.passwd", files / "clients.passwd"),
        ("/var/lib/mqbridge", data_directory),
        ("port: 8883", "port: 0"),
        ("port: 9157", f"port: {free_port()}"),
        ("address: 0.0.0.0", "address: 127.0.0.1"),
    ):
        assert place in text
        text = text.replace(place, str(here))
    data_directory.mkdir(exist_ok=True)
    return text


def make_files(directory: Path) -> None:
    """Create the files in the Secrets of the chart."""
    make(directory, days=365)  # so that the status has no problem
    write_password_file(directory / "clients.passwd", {"pump-7": PasswordEntry(hash_of("secret"))})


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeProcess]:
    """A bridge with the configuration of the ConfigMap."""
    make_files(tmp_path)
    text = placed(objects["ConfigMap", "mqbridge"]["data"]["bridge.yaml"], tmp_path, tmp_path / "data")
    process = BridgeProcess(tmp_path / "data", config=text)
    yield process.start()
    if process.running:
        process.stop()


def test_clients_and_probes_of_a_bridge_with_this_configuration(
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


def merged(defaults: Any, values: Any) -> Any:
    """Return values merged with the defaults of a chart, like Helm: maps are merged, everything else is replaced."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return defaults | {key: merged(defaults.get(key), value) for key, value in values.items()}


IBM = {"type": "ibm", "name": "MQB1", "channel": "DEV.APP.SVRCONN", "connections": "localhost(1414)"}
#: The commands that NOTES.txt prints, without `kubectl exec`.
NOTES = re.findall(
    r"^  kubectl .* exec .* -- (mqbridge .*)$", (DEPLOY / "helm/templates/NOTES.txt").read_text(encoding="utf-8"), re.M
)


@pytest.mark.usefixtures("environments")
def test_the_commands_of_the_notes_work_on_ibm_mq(tmp_path: Path) -> None:
    """On an active bridge and on a standby, with the configuration of the chart and `type: ibm`."""
    make_files(tmp_path)
    values = yaml.safe_load((DEPLOY / "helm/values.yaml").read_text(encoding="utf-8"))
    text = yaml.safe_dump(merged(values, {"configuration": {"queue_manager": IBM}})["configuration"])
    assert [line.split()[1] for line in NOTES] == ["check", "status", "reload"]
    host = QueueManagerProcess(tmp_path / "host").start()
    active, second = (RemoteBridgeProcess(tmp_path / name, queue_manager=host) for name in ("active", "standby"))
    for process in (active, second):
        assert process.config is not None
        process.config.write_text(placed(text, tmp_path, tmp_path / process.config.stem), encoding="utf-8")
        process.env["MQI_STANDIN"] = host.place

    def run_notes(config: Path, commands: Sequence[str]) -> None:
        for line in commands:
            words = [str(config) if word == "/etc/mqbridge/bridge.yaml" else word for word in line.split()]
            process = subprocess.run(
                [MQBRIDGE, *words[1:]], env=active.env, capture_output=True, text=True, check=False
            )
            assert process.returncode == 0, (line, process.stdout, process.stderr)

    active.start()
    try:
        assert active.config is not None and second.config is not None
        run_notes(active.config, NOTES)
        with LineProcess([MQBRIDGE, "run", second.config, "--port", "0"], env=second.env) as standby:
            standby.line_where(lambda line: "standing by" in line)
            run_notes(second.config, NOTES[:2])  # a standby does not reload
            assert standby.terminate() == 0
    finally:
        active.discard()


@pytest.fixture(scope="module")
def render() -> Callable[..., str]:
    """Return the function that renders the chart. Only `make test-slow` installs the package with Helm's engine."""
    return runpy.run_path(str(DEPLOY / "helm" / "render.py"))["render"]


@pytest.mark.slow
def test_the_checked_in_manifests_are_current(render: Callable[..., str]) -> None:
    assert render() == MANIFESTS, "run: python deploy/helm/render.py"


@pytest.mark.slow
def test_on_ibm_mq_the_chart_starts_an_active_and_a_standby_bridge(render: Callable[..., str], tmp_path: Path) -> None:
    values = {
        "configuration": {"queue_manager": IBM},
        "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "ports": [{"port": 1414}]}]},
        "service": {"type": "ClusterIP", "annotations": {"example.com/pool": "a"}},
        "tolerations": [{"operator": "Exists"}],
    }
    manifests = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(render(values))}
    file = tmp_path / "bridge.yaml"
    file.write_text(manifests["ConfigMap"]["data"]["bridge.yaml"], encoding="utf-8")
    defaults = yaml.safe_load((DEPLOY / "helm/values.yaml").read_text(encoding="utf-8"))
    file_of_test = tmp_path / "merged.yaml"
    file_of_test.write_text(yaml.safe_dump(merged(defaults, values)["configuration"]), encoding="utf-8")
    assert load(file) == load(file_of_test)  # the commands of the test of the notes
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
    spec = manifests["StatefulSet"]["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["updateStrategy"]) == (
        2,
        "Parallel",
        {"type": "OnDelete"},
    )
    assert "volumeClaimTemplates" not in spec
    assert manifests["Service"]["spec"]["publishNotReadyAddresses"] is False
    assert manifests["NetworkPolicy"]["spec"]["egress"][-1]["ports"] == [{"port": 1414}]


@pytest.mark.slow
def test_the_chart_contains_monitor_and_alerts_for_the_prometheus_operator(
    render: Callable[..., str], container: Any
) -> None:
    """Their schemas are not part of Kubernetes (docs/reference/tested-configurations.md)."""
    text = render({"monitoring": {"enabled": True, "labels": {"release": "prometheus"}}})
    manifests = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}
    assert manifests["PrometheusRule"]["spec"] == yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))
    assert manifests["PrometheusRule"]["metadata"]["labels"]["release"] == "prometheus"
    monitor = manifests["PodMonitor"]["spec"]
    labels = objects["StatefulSet", "mqbridge"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "mqbridge"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", [{"image": {"repo": "mqbridge"}}, {"configuration": {"channels": []}}], ids=["misspelled", "no channel"]
)
def test_the_chart_rejects_invalid_values(render: Callable[..., str], values: dict[str, Any]) -> None:
    import helm_python

    chart = helm_python.Chart.load(str(DEPLOY / "helm"))
    with chart, pytest.raises(helm_python.HelmError, match=r"repo|channels"):
        chart.validate_schema(chart.merge_values(values))
