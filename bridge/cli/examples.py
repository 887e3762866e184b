"""Examples of commands, for their help. Those of commands that follow from a request are in the request."""

from __future__ import annotations

EXAMPLES = {
    "run": ("mqbridge run", "mqbridge run /etc/mqbridge/bridge.yaml"),
    "check": ("mqbridge check bridge.yaml", "mqbridge check bridge.yaml --connect --json"),
    "try": (
        "mqbridge try orders --config bridge.yaml --topic shop/7/orders --payload '{\"id\": 1}' --qos 1",
        "mqbridge mq get ORDERS --browse --json | mqbridge try answers --config bridge.yaml --message -",
    ),
    "passwd": ("mqbridge passwd clients.passwd pump-7", "mqbridge passwd clients.passwd pump-7 --delete"),
    "schema": ("mqbridge schema > mqbridge.schema.json",),
    "install-service": (
        "mqbridge install-service --dry-run",
        "mqbridge install-service",
        "mqbridge install-service --mq --config /etc/mqbridge/QM1.yaml",
    ),
    "status": ("mqbridge status", "mqbridge status --config /etc/mqbridge/bridge.yaml -o json"),
    "top": ("mqbridge top", "mqbridge top --json --interval 5s --limit 12"),
    "health": ("mqbridge health", "mqbridge health --period 6h --name ORDERS -o json"),
    "search": ("mqbridge search pump-7", "mqbridge search waiting --kind setting -o json"),
    "client list": ("mqbridge client list", "mqbridge client list 'pump-*' --disconnected --away 7d -o name"),
    "client show": ("mqbridge client show pump-7",),
    "client history": ("mqbridge client history pump-7",),
    "client trace": (
        "mqbridge client trace pump-7",
        "mqbridge client trace pump-7 --payloads --for 10min --file trace.jsonl",
    ),
    "client disconnect": ("mqbridge client disconnect pump-7", "mqbridge client disconnect pump-1 'sensor-*'"),
    "client purge": ("mqbridge client purge pump-7", "mqbridge client purge --away 90d --dry-run"),
    "topic list": ("mqbridge topic list", "mqbridge topic list plant/7 --json"),
    "topic show": ("mqbridge topic show plant/7/status", "mqbridge topic show 'plant/#' --limit 20"),
    "topic publishers": ("mqbridge topic publishers 'plant/#'",),
    "topic route": ("mqbridge topic route plant/line-1/temp --payload 21.5 --client pump-7",),
    "topic publish": ("mqbridge topic publish plant/line-1/target 21 --retain",),
    "user list": ("mqbridge user list",),
    "user set-password": (
        "mqbridge user set-password pump-7",
        "mqbridge user set-password anna --file /etc/mqbridge/admins",
    ),
    "user delete": ("mqbridge user delete pump-7",),
    "user may-publish": ("mqbridge user may-publish pump-7 PLAIN.MQTT plant/line-1/temp",),
    "mapping show": ("mqbridge mapping show orders",),
    "link show": ("mqbridge link show cloud --json",),
    "link test": ("mqbridge link test cloud",),
    "config list": ("mqbridge config list", "mqbridge config list limits --all -o json"),
    "config show": ("mqbridge config show",),
    "config check": ("mqbridge config check edited.yaml",),
    "reload": ("mqbridge reload --config /etc/mqbridge/bridge.yaml",),
    "group status": (
        "mqbridge group status /etc/mqbridge/shard-0.yaml /etc/mqbridge/shard-1.yaml",
        "mqbridge group status --token-file admin.token 10.0.0.11:9150 10.0.0.11:9151 10.0.0.12:9150 10.0.0.12:9151",
    ),
    "group shard": ("mqbridge group shard pump-7 --config /etc/mqbridge/shard-0.yaml",),
    "explain": ("mqbridge explain MQB1201W", "mqbridge explain MQRC_Q_FULL"),
    "mq put": ("mqbridge mq put ORDERS hello --persistent", "mqbridge mq put commands/reset now --to dev-1"),
    "mq get": ("mqbridge mq get ORDERS --wait 5s --json", "mqbridge mq get ORDERS --browse --limit 0"),
    "mq pub": ("mqbridge mq pub sensors/1 21.5 --retain",),
    "mq sub": ("mqbridge mq sub 'sensors/#'", "mqbridge mq sub 'sensors/#' --durable collector --json"),
    "mq remove": ("mqbridge mq remove SYSTEM.MQTT.TRANSMIT.QUEUE 414D51204D514231202020202020202000000198A1C00001",),
    "dlq list": ("mqbridge dlq list", "mqbridge dlq list --reason MQRC_Q_FULL --bound-for 'ORDERS*' --older-than 1h"),
    "dlq show": ("mqbridge dlq show 414D51204D514231202020202020202000000198A1C00001",),
    "dlq retry": (
        "mqbridge dlq retry --reason MQRC_Q_FULL --config /etc/mqbridge/bridge.yaml",
        "mqbridge dlq retry --bound-for 'OLD.QUEUE' --to NEW.QUEUE",
    ),
    "dlq export": (
        "mqbridge dlq export messages.jsonl --older-than 30d --delete",
        "mqbridge dlq export messages/ --all",
    ),
    "dlq delete": ("mqbridge dlq delete --client pump-7 --dry-run",),
    "mqsc": ("mqbridge mqsc", "mqbridge mqsc < queues.mqsc"),
    "mqsc command": ('mqbridge mqsc "DEFINE QLOCAL(ORDERS) MAXDEPTH(10000)"',),
    "mqsc run": ("mqbridge mqsc run queues.mqsc",),
    "mqsc display": ("mqbridge mqsc display 'QLOCAL(*)' CURDEPTH", "mqbridge mqsc display 'CONN(*)' -o yaml"),
    "mqsc dump": ("mqbridge mqsc dump > definitions.mqsc",),
    "record show": ("mqbridge record show stock.cpy", "mqbridge record show stock.cpy --option names=camel -o json"),
    "record decode": (
        "mqbridge record decode stock.cpy stock.dat --ccsid 1140",
        "mqbridge record decode customer.cpy - -o json --option encoding=s390 --option names=camel < customers.dat",
    ),
    "record encode": ("mqbridge record encode stock.cpy stock.jsonl --ccsid 1140 --to stock.dat",),
    "data backup": (
        "mqbridge data backup /backup/mqbridge.db",
        "mqbridge data backup /backup/bridge.db --force --data-dir /data",
    ),
    "data restore": ("mqbridge data restore /backup/mqbridge.db --data-dir /var/lib/mqbridge",),
    "data verify": ("mqbridge data verify /var/lib/mqbridge",),
    "data salvage": (
        "mqbridge data salvage /var/lib/mqbridge /var/lib/mqbridge.salvaged",
        "mqbridge data salvage --accept-loss /var/lib/mqbridge /var/lib/mqbridge.salvaged",
    ),
    "mqsc-script": (
        "mqbridge mqsc-script --config /etc/mqbridge/bridge.yaml > bridge.mqsc",
        "mqbridge mqsc-script --config /etc/mqbridge/bridge.yaml --user mqbridge > bridge.mqsc",
    ),
    "ibm-acceptance": ("mqbridge ibm-acceptance --config /etc/mqbridge/bridge.yaml",),
    "audit": ("mqbridge audit --archive /var/lib/mqbridge/archive --from 2026-11-21 --late 5s",),
    "report": ("mqbridge report --archive /var/lib/mqbridge/archive --from 2026-11-21 --html report.html",),
    "replay": (
        "mqbridge replay --archive /var/lib/mqbridge/archive --from 2026-11-21T14:30 --filter 'plant/#' --rate 100",
    ),
    "lake": (
        "mqbridge lake /srv/orders --queue ORDERS --config /etc/mqbridge/bridge.yaml",
        "mqbridge lake /srv/sensors --topic 'sensors/#' --format delta --columns topic,payload,received",
        "mqbridge lake /srv/stock --queue STOCK --copybook stock.cpy --columns put_time,md.MsgId",
    ),
    "pipeline list": ("mqbridge pipeline list --config bridge.yaml",),
    "pipeline check": ("mqbridge pipeline check readings --config bridge.yaml",),
    "pipeline run": ("mqbridge pipeline run --config bridge.yaml", "mqbridge pipeline run readings --once"),
    "pipeline show": ("mqbridge pipeline show --config bridge.yaml", "mqbridge pipeline show readings --json"),
    "pipeline stop": ("mqbridge pipeline stop readings --config bridge.yaml",),
    "pipeline drain": ("mqbridge pipeline drain readings --config bridge.yaml",),
    "pipeline reset": ("mqbridge pipeline reset readings --config bridge.yaml",),
    "pipeline spool list": ("mqbridge pipeline spool list --config bridge.yaml",),
    "pipeline spool return": (
        "mqbridge pipeline spool return ORDERS --config bridge.yaml",
        "mqbridge pipeline spool return 'sensors/#' --to SENSORS --spool /srv/sensors/.spool",
    ),
    "help": ("mqbridge help client purge",),
    "completion": ("mqbridge completion bash > ~/.local/share/bash-completion/completions/mqbridge",),
    "version": ("mqbridge version",),
}


def epilog(examples: tuple[str, ...]) -> str:
    """Return the end of the help of a command with these examples."""
    lines = (f"  {example}" for example in examples)
    return "\n".join([f"Example{'s' if len(examples) > 1 else ''}:", "", "\b", *lines])
