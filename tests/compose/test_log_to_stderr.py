"""What a program writes to stderr when nobody sits there: lines of JSON."""

from __future__ import annotations

import subprocess
import sys

import msgspec

PROGRAM = """
import logging
from fairlead.compose.program import log_to_stderr
log_to_stderr(program="agent", region="us", node="n1")
logging.getLogger("fairlead.agent").warning("node %s refuses", "n1", extra={"tenant": "risk", "slot": "api-0"})
logging.getLogger("fairlead.agent").debug("nobody reads this")
"""


def test_a_collector_gets_lines_of_json_with_what_the_process_is() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=120, check=True)
    (line,) = [msgspec.json.decode(each) for each in ran.stderr.splitlines()]
    assert (line["program"], line["region"], line["node"]) == ("agent", "us", "n1")
    assert (line["level"], line["message"]) == ("WARNING", "node n1 refuses")
    assert (line["tenant"], line["slot"]) == ("risk", "api-0")
