"""`python -m tests.ibm_standin run bridge.yaml`: mqbridge, whose embedded queue manager also serves programs in C."""

from bridge.cli import main
from bridge.mq.embedded.host import EmbeddedHost
from tests.ibm_standin.pcf.command_server import StandInCommandServer
from tests.ibm_standin.server import StandInServer

if __name__ == "__main__":
    EmbeddedHost.SERVER = StandInServer
    EmbeddedHost.COMMAND_SERVER = StandInCommandServer
    main()
