"""Why torch compiled no graph, in its own words."""

from __future__ import annotations

import re

from runner.worker.torch_private import counters

LENGTH = 200  # characters of a reason
FLAG = re.compile(r"torch\._dynamo\.config\.\w+(?= ?= ?True)")
"""A flag that torch's hint says to set."""


def why_uncompiled() -> str:
    """Return why no graph was compiled since torch's counters were cleared, and the flag that changes it; empty if
    torch names no reason."""
    for reason in (str(key) for kind in ("unimplemented", "graph_break") for key in counters.of(kind) or ()):
        flag = FLAG.search(reason)
        remedy = f"; to have it traced: config: {{{flag[0]}: true}}" if flag else ""
        return reason.strip().split("\n")[0][:LENGTH] + remedy
    return ""
