"""`python -m tests.ibm_standin run bridge.yaml`: mqbridge, whose embedded queue manager also serves programs in C."""

from bridge.cli import main
from bridge.mq.embedded.admission import Admission
from bridge.mq.embedded.host import EmbeddedHost
from bridge.mq.embedded.queuemanager import QueueManager
from tests.ibm_standin.pcf.command_server import CommandServer
from tests.ibm_standin.server import StandInServer


class _Server(StandInServer):
    def __init__(self, queue_manager: QueueManager, admission: Admission | None = None) -> None:
        super().__init__(queue_manager, admission)
        CommandServer(queue_manager).start()


if __name__ == "__main__":
    EmbeddedHost.SERVER = _Server
    main()
