"""One local platform for every test here that needs one: starting it costs more than most of what is asked of it.

It has short leases, one plane on each engine, the samples and three workloads of its own. Each test leaves it healed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.platform.platforms import LEASE_S, PYTHON, ROLLOUT, SMALL, STORES, Platform, service


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    made = Platform(tmp_path_factory.mktemp("platform") / "state")
    witness = made.state.parent / "witness"
    try:
        stores = [text for plane, url in STORES.items() for text in ("--store", f"{plane}={url()}")]
        made.start("--node-lease", str(LEASE_S), *stores)
        made.create(
            "billing", "steady", replicas=2, workloadClass="standard", template=service(), resources=SMALL, rollout=ROLLOUT,
            placement={"regions": {"allowed": ["us-west"]}},
        )  # fmt: skip
        made.create(
            "analytics", "witness", workloadClass="batch", job={"completions": 1, "parallelism": 1, "retries": 50},
            resources=SMALL, placement={"regions": {"allowed": ["us-west"]}},
            template={
                "driver": "process", "command": [PYTHON, "-m", "fairlead.samples.fraud_batch"], "restartPolicy": "Never",
                "env": [{"name": "DURATION_S", "value": "3600"}, {"name": "WITNESS_FILE", "value": str(witness)}],
                "stopGraceSeconds": 1,
            },
        )  # fmt: skip
        made.create(
            "analytics", "crasher", replicas=1, workloadClass="best-effort", resources=SMALL,
            template={"driver": "process", "command": [PYTHON, "-c", "raise SystemExit(3)"], "restartPolicy": "Always"},
            placement={"regions": {"allowed": ["us-west"]}},
        )  # fmt: skip
        made.wait(lambda: made.all_serve("steady"), "steady and every sample serving")
        yield made
    finally:
        made.stop()
