"""A real Prometheus with the shipped alert rules, scraping every server of a local platform."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.platform.platforms import Platform
from tests.servers.ports import free_ports

ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
PLANES = ("global", "us-east", "us-west", "eu-central")


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **query: str) -> Any:
        """None while it does not answer yet."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, expression: str, label: str) -> dict[str, float]:
        found = self.ask("query", query=expression)
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in found["result"]} if found is not None else {}


@contextmanager
def prometheus(platform: Platform, folder: Path) -> Iterator[Prometheus]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    listens = {p: json.loads((platform.state / "config" / f"{p}.json").read_text())["listen"] for p in PLANES}
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "fairlead",
                "scheme": "https",
                "tls_config": {"ca_file": str(platform.state / "pki" / "ca.pem")},
                "authorization": {"credentials_file": str(platform.state / "run" / "metrics.token")},
                "static_configs": [{"targets": [listen], "labels": {"plane": plane}} for plane, listen in listens.items()],
            }
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings))
    words = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait(30)
