"""Draw the diagrams of the documentation as SVG files in docs/images.

    python docs/diagrams.py

The files are checked in. Edit this script, not the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
#: fill and stroke of boxes, by kind
COLOURS = {
    "client": ("#e8f1fb", "#3b78b5"),
    "bridge": ("#fdf1dc", "#c27c0e"),
    "queue": ("#e9f6ec", "#3a8a4d"),
    "file": ("#f4f4f4", "#777777"),
    "group": ("none", "#999999"),
}
FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass
class Diagram:
    """Boxes, arrows and labels on a white canvas."""

    title: str
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, kind: str, *lines: str) -> None:
        """Draw a box with centred lines, the first of them bold."""
        fill, stroke = COLOURS[kind]
        self._rectangle(x, y, width, height, f"fill='{fill}' stroke='{stroke}' stroke-width='1.5'")
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            weight = " font-weight='bold'" if number == 0 else ""
            self.text(x + width // 2, int(top + 18 * number), line, weight)

    def group(self, x: int, y: int, width: int, height: int, label: str) -> None:
        """Draw a dashed frame with a label at the top left."""
        _, stroke = COLOURS["group"]
        self._rectangle(x, y, width, height, f"fill='none' stroke='{stroke}' stroke-dasharray='5 4'")
        self.text(x + 10, y + 19, label, " font-style='italic' fill='#555555'", anchor="start")

    def _rectangle(self, x: int, y: int, width: int, height: int, attributes: str) -> None:
        self._parts.append(f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' {attributes}/>")

    def text(self, x: int, y: int, text: str, attributes: str = "", anchor: str = "middle", size: int = 13) -> None:
        """Write one line."""
        self._parts.append(
            f"<text x='{x}' y='{y}' text-anchor='{anchor}' font-size='{size}' {FONT}{attributes}>{escape(text)}</text>"
        )

    def arrow(
        self, x1: int, y1: int, x2: int, y2: int, label: str = "", both: bool = False, dashed: bool = False
    ) -> None:
        """Draw an arrow with a label above its middle."""
        start = " marker-start='url(#back)'" if both else ""
        dashes = " stroke-dasharray='4 4'" if dashed else ""
        self._parts.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#444444' stroke-width='1.5' "
            f"marker-end='url(#head)'{start}{dashes}/>"
        )
        if label:
            self.text((x1 + x2) // 2, (y1 + y2) // 2 - 7, label, " fill='#333333'", size=12)

    def svg(self) -> str:
        """Return the file's text."""
        head = "<path d='M0,0 L8,4 L0,8 z' fill='#444444'/>"
        back = "<path d='M8,0 L0,4 L8,8 z' fill='#444444'/>"
        return "\n".join(
            (
                f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' "
                f"height='{self.height}' role='img'>",
                f"<title>{escape(self.title)}</title>",
                f"<defs><marker id='head' markerWidth='8' markerHeight='8' refX='8' refY='4' orient='auto'>{head}</marker>",
                f"<marker id='back' markerWidth='8' markerHeight='8' refX='0' refY='4' orient='auto'>{back}</marker></defs>",
                f"<rect width='{self.width}' height='{self.height}' fill='#ffffff'/>",
                *self._parts,
                "</svg>\n",
            )
        )


def data_path() -> Diagram:
    """Draw devices, the bridge, the queue manager and MQ applications."""
    made = Diagram("Path of a message between a device and an MQ application", 860, 300)
    made.box(20, 40, 150, 60, "client", "Devices", "MQTT 3.1, 3.1.1, 5")
    made.box(20, 130, 150, 60, "client", "Browsers", "MQTT, WebSocket")
    made.box(20, 220, 150, 60, "client", "Other brokers", "links and mappings")
    made.box(300, 80, 150, 160, "bridge", "mqbridge", "channels", "sessions", "mappings")
    made.group(540, 20, 180, 260, "queue manager")
    made.box(560, 60, 140, 50, "queue", "Topics")
    made.box(560, 125, 140, 50, "queue", "Queues")
    made.box(560, 190, 140, 70, "queue", "Transmission", "queue", "(to clients)")
    made.box(760, 105, 95, 90, "client", "MQ", "applications")
    made.arrow(170, 70, 298, 115, "TLS", both=True)
    made.arrow(170, 160, 298, 160, "wss", both=True)
    made.arrow(170, 250, 298, 205, "MQTT", both=True)
    made.arrow(450, 110, 558, 85, "publish")
    made.arrow(450, 152, 558, 150, "mapping", both=True)
    made.arrow(558, 225, 452, 205, "deliver")
    made.arrow(758, 135, 702, 95, both=True)
    made.arrow(758, 150, 702, 150, both=True)
    made.arrow(758, 170, 702, 215)
    return made


def tls() -> Diagram:
    """Draw the files of a TLS set-up, and who verifies whom."""
    made = Diagram("Certificates of a TLS set-up", 860, 300)
    made.box(350, 15, 160, 55, "queue", "Your CA", "ca.pem, ca.key")
    made.group(20, 100, 330, 185, "bridge")
    made.box(40, 135, 135, 60, "file", "server.pem", "server.key")
    made.box(195, 135, 135, 60, "file", "ca.pem", "verifies clients")
    made.box(40, 215, 290, 50, "bridge", "mqbridge, port 8883", "user = Common Name")
    made.group(510, 100, 330, 185, "device")
    made.box(530, 135, 135, 60, "file", "ca.pem", "verifies the server")
    made.box(685, 135, 135, 60, "file", "pump-7.pem", "pump-7.key")
    made.box(530, 215, 290, 50, "client", "MQTT client", "host name in server.pem")
    made.arrow(350, 60, 110, 133, "signs", dashed=True)
    made.arrow(510, 60, 750, 133, "signs", dashed=True)
    made.arrow(528, 240, 332, 240, "TLS, both sides verified", both=True)
    return made


def pair() -> Diagram:
    """Draw two bridges on one queue manager."""
    made = Diagram("An active and a standby bridge on IBM MQ", 860, 300)
    made.box(20, 120, 120, 60, "client", "Devices", "reconnect")
    made.box(220, 110, 140, 80, "file", "Load balancer", "TCP, health check", "GET /readyz")
    made.box(450, 30, 160, 80, "bridge", "bridge1: active", "/readyz 200")
    made.box(450, 190, 160, 80, "bridge", "bridge2: standby", "/readyz 503")
    made.group(700, 20, 150, 260, "IBM MQ, QM1")
    made.box(715, 55, 120, 60, "queue", "Lock queue", "exclusive")
    made.box(715, 130, 120, 60, "queue", "State queue", "sessions")
    made.box(715, 205, 120, 60, "queue", "Transmission", "queue")
    made.arrow(140, 150, 218, 150, both=True)
    made.arrow(360, 135, 448, 80, both=True)
    made.arrow(360, 165, 448, 220, dashed=True)
    made.text(395, 205, "after a", " fill='#333333'", size=12)
    made.text(395, 220, "failover", " fill='#333333'", size=12)
    made.arrow(610, 70, 713, 80, "has the lock")
    made.arrow(610, 225, 713, 105, "waits", dashed=True)
    return made


DIAGRAMS = {"data-path": data_path, "tls": tls, "pair": pair}


def main() -> None:
    """Write the files."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
