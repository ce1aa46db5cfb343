"""Writes the file of the present format from a simulated region at work."""

from __future__ import annotations

from fairlead.model.journal import decode_blob
from fairlead.sim.loop import sleep
from fairlead.store.contract import FORMAT
from tests.sim.formats import StoredBatch, StoredPlane, write
from tests.sim.races.stage import REGION, Stage, played


def main() -> None:
    async def script(stage: Stage) -> StoredPlane:
        await stage.create("api", 3)
        await stage.create("index", 1, exclusive=True)
        await stage.until(lambda: stage.serving("api") == 3 and stage.serving("index") == 1)
        await stage.cordon(f"{REGION}-n1")
        await sleep(5.0)
        journal = stage.world.watches[REGION].batches
        rows: dict[str, bytes] = {}
        for batch in journal:
            for entry in decode_blob(batch.blob).entries:
                for key, raw in entry.effects:
                    rows.pop(key, None)
                    if raw is not None:
                        rows[key] = raw
        stored = [StoredBatch(b.first, b.last, b.previous, b.hash, b.blob) for b in journal]
        return StoredPlane(FORMAT, REGION, stored, list(rows.items()))

    print(write(played(script)).name)


if __name__ == "__main__":
    main()
