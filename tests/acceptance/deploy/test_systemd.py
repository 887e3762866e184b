"""The service with a separate systemd: PID 1 in namespaces, on this machine's files. Its writes stay in memory.

The network is shared, so the queue manager (the stand-in, listening on TCP) runs outside. `/opt/mqm/lib64`, where IBM MQ
installs its client library, contains that of the stand-in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.client_packages import BUILD
from tests.helpers.installed import CLIENT_PACKAGES, missing, program
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import free_port
from tests.helpers.remote_bridge import NAME, QueueManagerProcess

ROOT = Path(__file__).parents[3]
#: The interpreter of the system: ProtectHome= hides one below /root or /home.
PYTHON = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
USER = "mqbridge"
END = "--- end of the commands"

#: Arguments: the mount point, the file with commands for the booted system.
BOOT = """
set -eu
mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
cp "$2" upper/../commands; cd root
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /dev dev
mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp
if [ ! -e sys/fs/cgroup/cgroup.controllers ]; then
    mount -t tmpfs tmpfs sys/fs/cgroup; mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
cp ../commands run/commands
printf '[Unit]\\nDescription=nothing\\n' > etc/systemd/system/nothing.target
(until chroot . systemctl is-active nothing.target; do sleep 0.2; done
 chroot . sh /run/commands 2>&1 || echo "status $?"; echo "END") &
exec env container=lxc chroot . /lib/systemd/systemd --unit=nothing.target --log-target=null
""".replace("END", END)

#: The commands of an administrator, and the requirements of the test: the installed program, and the address of the stand-in.
COMMANDS = """
set -eu
mkdir -p /opt/mqbridge/bin /opt/mqm/lib64 /var/mqm
cp {library}/* /opt/mqm/lib64
cat > /opt/mqbridge/bin/mqbridge <<'X'
#!{python}
import sys
sys.path[:0] = ["{root}", "{packages}"]
from bridge.cli import main
main()
X
chmod 755 /opt/mqbridge/bin/mqbridge
ln -sf /opt/mqbridge/bin/mqbridge /usr/local/bin/mqbridge
mqbridge install-service
cat > /etc/mqbridge/bridge.yaml <<'X'
queue_manager:
  type: ibm
  name: {name}
{mode}
control_socket: /run/mqbridge/control
channels: [{{name: PLAIN, port: {port}}}]
X
mqbridge install-service
mkdir -p /etc/systemd/system/mqbridge.service.d
printf '[Service]\\nEnvironment=MQI_STANDIN=127.0.0.1({queue_manager}) PYTHONPATH={client}\\n' \\
    > /etc/systemd/system/mqbridge.service.d/stand-in.conf
systemctl daemon-reload
systemctl start dbus.socket dbus.service # systemd-run needs it
systemctl cat mqbridge | grep -A3 LD_LIBRARY_PATH
systemctl start mqbridge || journalctl -u mqbridge --no-pager -n 50
echo "state: $(systemctl is-active mqbridge)"
systemctl show mqbridge -p StatusText
echo "errors: $(setpriv --reuid {user} --regid {user} --clear-groups sh -c 'ls -ld {errors}')"
mosquitto_sub -p {port} -i keeper -q 1 -c -t systemd/# -E
mosquitto_pub -p {port} -q 1 -t systemd/1 -m 'through IBM MQ'
echo "got: $(mosquitto_sub -p {port} -i keeper -q 1 -c -t systemd/# -C 1)"
mqbridge check /etc/mqbridge/bridge.yaml --connect --as-service && echo "check: ok"
systemctl reload mqbridge && echo "reload: ok"
systemctl stop mqbridge
echo "state: $(systemctl is-active mqbridge)" "$(systemctl show mqbridge -p Result)"
"""
MODES = {
    "client": "  channel: DEV.APP.SVRCONN\n  connections: localhost(1414)",
    "bindings": "  mode: bindings",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root boots a systemd"),
]


@contextmanager
def booted(commands: str, directory: Path) -> Iterator[LineProcess]:
    """Boot a systemd that runs commands. It ends with the block."""
    (directory / "boot.sh").write_text(BOOT)
    (directory / "commands").write_text(commands)
    (mount := directory / "machine").mkdir()
    command: list[str | Path] = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--ipc", "--uts"]
    command += ["--mount-proc", "sh", directory / "boot.sh", mount, directory / "commands"]
    machine = LineProcess(command)
    try:
        yield machine
    finally:
        machine.process.send_signal(signal.SIGKILL)
        machine.process.wait()


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("mode", MODES)
def test_the_service_on_ibm_mq(tmp_path: Path, mode: str) -> None:
    """Installed with its drop-in, started, used, checked with its restrictions, reloaded and stopped."""
    program("systemctl", "unshare", "mosquitto_pub")
    if subprocess.run(["unshare", "--pid", "--fork", "--mount", "true"], capture_output=True, check=False).returncode:
        missing("the right to create namespaces", "a machine, or a privileged container")
    if not PYTHON.exists():
        missing(f"{PYTHON}, which the service can reach", "apt")
    directory = tmp_path / "data"
    manager = QueueManagerProcess(directory).listen().start()
    port = free_port()
    commands = COMMANDS.format(
        root=ROOT,
        python=PYTHON,
        packages=sysconfig.get_path("purelib"),
        library=BUILD / "lib64",
        client=CLIENT_PACKAGES / "ibmmq",
        name=NAME,
        mode=MODES[mode],
        port=port,
        queue_manager=manager.port,
        user=USER,
        errors="/var/log/mqbridge/ibm-mq" if mode == "client" else "/var/mqm",
    )
    try:
        with booted(commands, tmp_path) as machine:
            lines: list[str] = []
            while (line := machine.line_where(lambda line: True)) != END:
                lines.append(line)
    finally:
        manager.discard()
    text = "\n".join(lines)
    states = [line for line in lines if line.startswith("state: ")]
    assert states == ["state: active", "state: inactive Result=success"], text
    for expected in ("got: through IBM MQ", "check: ok", "reload: ok"):
        assert expected in lines, text
    assert "Environment=LD_LIBRARY_PATH=/opt/mqm/lib64" in text
