"""The tables, the comparison with the targets, and the JSON file."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import mapping
from tests.benchmarks.campaign import Parameters, Results, Run
from tests.benchmarks.servers import STORAGE

BRIDGE = "bridge"
RATE_TARGETS: dict[int, dict[str, float]] = {
    0: {"mosquitto": 0.4},
    1: {"mosquitto": 0.3, "amqtt": 3.0},
    2: {"mosquitto": 0.3, "amqtt": 3.0},
}
"""Per QoS: the least the bridge should reach, in multiples of each broker's rate with the same kind of session."""
IDLE_TARGET_KB = 25.0


@dataclass
class Case:
    """A row: the median of a broker's rounds at one QoS with one kind of session."""

    broker: str
    qos: int
    session: str
    rate: float
    lowest: float
    highest: float
    server_cpu: float
    generator_cpu: float
    other_cpu: float
    messages: int
    valid: bool
    remarks: str


@dataclass
class Target:
    """A target of the bridge and its result. `met` is None if a figure is missing or invalid."""

    name: str
    wanted: float
    reached: float | None
    met: bool | None


def remarks_of(run: Run) -> tuple[bool, list[str]]:
    """Return whether a run counts, and remarks about it."""
    figures, remarks, valid = run.figures, [], True
    if figures["failure"]:
        return False, [str(figures["failure"])]
    for key in ("lost", "duplicates", "disordered", "unacknowledged"):
        if figures[key]:
            remarks.append(f"{figures[key]} {key}")
            fatal = {"lost": run.qos > 0, "duplicates": run.qos == 2, "disordered": False, "unacknowledged": True}
            valid = valid and not fatal[key]
    return valid and bool(figures["received"]), remarks


def cases(results: Results) -> list[Case]:
    """Return the rows by QoS, in the order in which they were measured."""
    groups: dict[tuple[int, str, str], list[Run]] = {}
    for run in results.runs:
        groups.setdefault((run.qos, run.session, run.broker), []).append(run)
    rows = []
    for (qos, session, broker), runs in sorted(groups.items(), key=lambda item: item[0][:2]):
        judged = [remarks_of(run) for run in runs]
        rates = [float(run.figures["rate"]) for run in runs]
        remarks = [text for _, texts in judged for text in texts]
        server = statistics.median(float(run.figures["server_cpu"]) for run in runs)
        generator = statistics.median(float(run.figures["generator_cpu"]) for run in runs)
        if generator > 85 and server < 85 and broker != "relay":
            remarks.append("the generator may be the limit")
        others = statistics.median(float(run.figures["other_cpu"]) for run in runs)
        if others > 20 and server < 85 and broker != "relay":
            # The server waited for a generator without its core: its figure is too low, and the ratio to it too high.
            remarks.append("machine busy, not comparable")
        rows.append(
            Case(
                broker=broker,
                qos=qos,
                session=session,
                rate=statistics.median(rates),
                lowest=min(rates),
                highest=max(rates),
                server_cpu=server,
                generator_cpu=generator,
                other_cpu=others,
                messages=int(statistics.median(int(run.figures["sent"]) for run in runs)),
                valid=all(good for good, _ in judged),
                remarks="; ".join(dict.fromkeys(remarks)),
            )
        )
    return rows


def targets(results: Results, rows: list[Case]) -> list[Target]:
    """Compare the bridge with its targets."""
    rates = {(row.broker, row.qos, row.session): row.rate for row in rows if row.valid}
    out = []
    for qos, session in sorted({(row.qos, row.session) for row in rows}):
        for other, wanted in RATE_TARGETS[qos].items():
            own, reference = rates.get((BRIDGE, qos, session)), rates.get((other, qos, session))
            reached = own / reference if own is not None and reference else None
            met = None if reached is None else reached >= wanted
            out.append(Target(f"QoS {qos}, {session} session: rate, × {other}", wanted, reached, met))
    memory = results.idle.get(BRIDGE, {}).get("kb_per_client")
    if results.idle:
        met = None if memory is None else memory <= IDLE_TARGET_KB
        out.append(Target("memory per idle client, kB (at most)", IDLE_TARGET_KB, memory, met))
    return out


def show(console: Console, results: Results, parameters: Parameters) -> None:
    """Print everything."""
    rows = cases(results)
    if rows:
        console.print(_throughput(rows, parameters))
        console.print(
            "The relay is a bare forwarder, not a broker: its rows are the generator's ceiling.  The generator "
            "reads whenever data is available, so a high share of its core does not make it the limit as long as the "
            "server's is near 100 %.  Others: other processes of the machine in that time, in % of one core.\n",
            highlight=False,
        )
    if results.latency:
        console.print(_latency(results, parameters))
    if results.idle:
        console.print(_idle(results))
    if results.mapping:
        console.print(mapping.table(results.mapping))
    if target_rows := targets(results, rows):
        console.print(_targets(target_rows))
    for note in results.notes:
        console.print(f"Note: {note}", style="yellow", highlight=False, markup=False)


def write(path: Path, results: Results, parameters: Parameters, machine: dict[str, object]) -> None:
    """Write all figures as JSON."""
    rows = cases(results)
    document = {
        "machine": machine,
        "parameters": asdict(parameters),
        "versions": results.versions,
        "throughput": [asdict(row) for row in rows],
        "latency": results.latency,
        "idle": results.idle,
        "mapping": [asdict(figure) for figure in results.mapping],
        "targets": [asdict(target) for target in targets(results, rows)],
        "notes": results.notes,
        "runs": [asdict(run) for run in results.runs],
    }
    path.write_text(json.dumps(_finite(document), indent=2) + "\n")


def _finite(value: object) -> object:
    """Replace NaN by null, because JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _throughput(rows: list[Case], parameters: Parameters) -> Table:
    title = (
        f"Messages per second, end to end: {parameters.publishers} publishers, 1 subscriber, "
        f"{parameters.payload} bytes, window {parameters.window}, median of {parameters.rounds}"
    )
    table = Table(title=title, title_justify="left", caption=STORAGE, caption_justify="left")
    for name in ("QoS", "session", "broker"):
        table.add_column(name)
    for name in ("messages/s", "lowest–highest", "× mosquitto", "× amqtt", "server CPU", "generator", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("remarks")
    rates = {(row.broker, row.qos, row.session): row.rate for row in rows if row.valid}
    last = None
    for row in rows:
        if last not in (None, (row.qos, row.session)):
            table.add_section()
        last = (row.qos, row.session)
        ratios = []
        for other in ("mosquitto", "amqtt"):
            reference = rates.get((other, row.qos, row.session))
            ratios.append(f"{row.rate / reference:.2f}" if reference and row.valid and row.broker != "relay" else "–")
        table.add_row(
            str(row.qos),
            row.session,
            row.broker,
            f"{row.rate:,.0f}" if row.valid else "[red]invalid[/red]",
            f"{row.lowest:,.0f}–{row.highest:,.0f}",
            *ratios,
            f"{row.server_cpu:.0f} %",
            f"{row.generator_cpu:.0f} %",
            f"{row.other_cpu:.0f} %",
            row.remarks,
            style="bold" if row.broker == BRIDGE else None,
        )
    return table


def _latency(results: Results, parameters: Parameters) -> Table:
    title = f"Publish to receipt, ms: QoS 1, {parameters.latency_rate:.0f} messages/s, {parameters.latency_seconds:g} s"
    table = Table(title=title, title_justify="left")
    table.add_column("broker")
    table.add_column("session")
    for name in ("p50", "p90", "p99", "highest", "lost"):
        table.add_column(name, justify="right")
    for broker, sessions in results.latency.items():
        for session, figures in sessions.items():
            values = (f"{figures[key]:.2f}" for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
            table.add_row(broker, session, *values, str(figures["lost"]))
    return table


def _idle(results: Results) -> Table:
    table = Table(title="Memory per idle client (resident, server and its children)", title_justify="left")
    table.add_column("broker")
    for name in ("clients", "before, kB", "after, kB", "kB per client"):
        table.add_column(name, justify="right")
    for broker, figures in results.idle.items():
        before, after = f"{figures['before_kb']:,.0f}", f"{figures['after_kb']:,.0f}"
        table.add_row(broker, str(figures["clients"]), before, after, f"{figures['kb_per_client']:.1f}")
    return table


def _targets(target_rows: list[Target]) -> Table:
    table = Table(title="Targets of the bridge", title_justify="left")
    table.add_column("target")
    for name in ("wanted", "reached"):
        table.add_column(name, justify="right")
    table.add_column("")
    words = {True: "[green]met[/green]", False: "[red]not met[/red]", None: "no figure"}
    for target in target_rows:
        reached = "–" if target.reached is None else f"{target.reached:.2f}"
        table.add_row(target.name, f"{target.wanted:g}", reached, words[target.met])
    return table
