"""Spark, on which the pipelines run: where it is, its settings, and how its workers reach the queue manager."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from bridge.config import values
from bridge.config.client_tls import ClientTlsConfig
from bridge.config.section import FilePath, Section, without_empty

#: Names of settings whose values are secret.
_SECRET = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)

MASTER = r"local(?:\[[0-9*]+(?:,[0-9]+)?\])?|spark://[^ /]+|yarn|k8s://[^ ]+"
#: A package as `spark-submit --packages` takes it.
PACKAGE = r"[^\s:,]+:[^\s:,]+:[^\s:,]+"
MOST_ADDRESS = 264


SettingName = Annotated[str, values.text(r"spark\.[^\s=]{1,200}", "the name of a setting of Spark, which begins with spark.")]


class SparkConfig(Section):
    """Spark, on which `mqbridge pipeline run` runs the pipelines."""

    master: Annotated[str, values.text(MASTER, "local, local[N], spark://host:port, yarn or k8s://...")] | None = None
    """Where Spark runs; None: in a process of this machine, on all cores. `--master` wins."""
    conf: dict[SettingName, Annotated[str, values.setting()]] = Field(default_factory=dict)
    """Settings of Spark by name, such as `spark.executor.memory: 2g`. `--conf` wins."""
    packages: list[Annotated[str, values.text(PACKAGE, "group:artifact:version")]] = Field(default_factory=list)
    """Maven packages that Spark fetches (spark.jars.packages)."""
    jars: list[FilePath] = Field(default_factory=list)
    """Jars for driver and executors (spark.jars)."""
    listener: Annotated[str, values.text(r"[^()\s,]{1,255}\([0-9]{1,5}\)", "host(port)")] | None = None
    """Where workers on other machines reach the embedded queue manager; None: `queue_manager.listener`, as it is bound."""
    user: (
        Annotated[str, values.text(r"[!-9;-~]{1,1024}", "a user name of ASCII characters without blanks and :")] | None
    ) = None
    """The user that pipelines connect as to a listener with a password file."""
    password_file: FilePath | None = None
    """File whose first line is the password of `user`; at the same path on each worker."""
    tls: ClientTlsConfig | None = None
    """TLS to the listener, for one that has it; its files are at the same paths on each worker."""
    shared: list[FilePath] = Field(default_factory=list)
    """Directories of a file system that this machine and all workers have at the same path (NFS). On a cluster, archives,
    reference tables, and checkpoints of a SELECT with state have to be below one of them."""

    @model_validator(mode="before")
    @classmethod
    def _empty_lists(cls, data: Any) -> Any:
        return without_empty(data, "conf", "packages", "jars", "shared")

    @field_validator("conf")
    @classmethod
    def _no_secret(cls, conf: Mapping[str, str]) -> Mapping[str, str]:
        for name in conf:
            if is_secret(name):
                raise values.refusal(
                    "no secret in this file, because too many read it (write it into spark-defaults.conf of SPARK_CONF_DIR,"
                    " or name a credential provider)",
                    name,
                )
        return conf

    @model_validator(mode="after")
    def _user_and_password(self) -> SparkConfig:
        if self.password_file is not None and self.user is None:
            raise values.refusal("the name of the user whose password it is", "user")
        if self.user is not None and self.password_file is None:
            raise values.refusal("a file whose first line is the password of user", "password_file")
        return self


def is_secret(setting: str) -> bool:
    """Return whether a setting of Spark is one whose value nobody is to see, by its name."""
    return bool(_SECRET.search(setting)) and not setting.endswith((".path", ".file", ".provider"))


def is_remote(master: str | None) -> bool:
    """Return whether a master has its tasks run elsewhere than in the driver's process."""
    return master is not None and not master.startswith("local")
