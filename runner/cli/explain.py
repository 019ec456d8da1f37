"""``runner explain``: what torch.compile made of a case over its calls, as tables or as one JSON object.

The object's keys (``null`` where torch does not say; ``at`` is ``file:line:column`` in the YAML, ``code`` the
statement):

``id``, ``torch``, ``backend``
    what was explained.
``calls``
    ``call`` (from 0), ``graphs_run`` (numbers of graphs), ``compiled`` and ``recompiled`` (compile ids: ``1/0`` is
    frame 1, first compilation), ``graph_breaks`` (how many), ``eager`` (frames past the recompile limit that ran
    uncompiled).
``compilations``
    ``compile_id``, ``call``, ``frame``, ``at``, ``seconds``, ``guards``, ``operators``, ``restarts``, ``failed`` (why
    Dynamo gave the frame up).
``graphs``
    ``graph`` (number), ``call``, ``compile_id``, ``frame``, ``operators`` (name to count), ``compiled``, ``runs``
    (calls).
``graph_breaks``
    ``call``, ``compile_id``, ``reason``, ``at``, ``code``.
``recompiles``
    ``call``, ``compile_id``, ``reasons`` (for each older compilation the guard that failed), ``compiled`` (false past
    the limit).
``limits``
    ``call``, ``frame``, ``at``, ``limit`` (the flag), ``value``, ``reason``: a frame was compiled too often.
``guards``
    compile id to a list of expressions.
``first_call``
    what ``torch._dynamo.explain`` says of the first call alone: ``graphs``, ``graph_breaks``, ``operators``,
    ``guards``.
``counters``
    ``torch._dynamo.utils.counters``.
``raised``
    ``type``, ``message``, ``at``, ``code``, ...: what ended the run.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner import console, exit_codes
from runner.builder.source import Source
from runner.cli.arguments import FAILURE, RESULT_CODES, argument, command, settings_of
from runner.cli.variants import first_variant
from runner.diagnose.harness import Progress, VariantEngine, refuse_launches, result_of
from runner.text import clean, draw_table, duration, one_line, plural

_WIDTH = 100  # characters of a reason in a table; the JSON has all of it
_GUARD_WIDTH = 240  # enough for what a tensor is guarded on, not for the whole of torch's global state

_NAMES = re.compile(r"(?<=\[)'[^']*'(?=\])|'_dynamo_\w+'|\b\d{9,}\b")
"""What guards that are alike differ in: keys, marks of tensors, and numbers of objects."""


@command(
    "What torch.compile made of a case over its calls, as tables.",
    *FAILURE,
    argument("--json", action="store_true", help="as JSON"),
    epilog=RESULT_CODES,
)
def run(arguments: argparse.Namespace) -> int:
    """Explain a variant on standard output.

    Raises:
        UsageError: the variant cannot run here, or its process died.
        InputError: the case is wrong.
    """
    variant = first_variant(arguments)
    refuse_launches(variant, "explain")
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, slots=1) as engine:
        record = result_of(engine.ask([engine.job("explain")], lambda: progress.say(f"compiling {variant.id}"))[0])
        document = {
            "id": variant.id,
            "torch": engine.environment.build,
            "backend": variant.backend.backend,
            **placed(record, engine.source),
        }
    console.output(json.dumps(document, indent=2) if arguments.json else render_explained(document))
    return exit_codes.OK


def placed(record: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The worker's record with ``at`` and ``code`` for every ``line``."""
    text = source.text.split("\n")

    def place(value: Any) -> Any:
        if isinstance(value, list):
            return [place(item) for item in value]
        if not isinstance(value, dict):
            return value
        placed_value = {key: place(item) for key, item in value.items() if key != "line"}
        if "line" in value:
            line = value["line"]
            span = source.place(line)
            known = isinstance(line, int) and 0 < line <= len(text)
            placed_value |= {"at": str(span) if span else None, "code": text[line - 1].strip() if known else None}
        return placed_value

    return {key: place(value) for key, value in record.items()}


def render_explained(document: Mapping[str, Any]) -> str:
    """The document as text: a summary, then a table for each part that is not empty."""
    parts = [_summary(document), _not_compiled(document), _raised(document), *_tables(document)]
    parts += [_first_call(document), _guards(document)]
    return clean("\n\n".join(part for part in parts if part))


def _summary(document: Mapping[str, Any]) -> str:
    counts = [
        plural(len(document["graphs"]), "graph"),
        plural(len(document["graph_breaks"]), "graph break"),
        plural(sum(entry["compiled"] for entry in document["recompiles"]), "recompile"),
    ]
    seconds = sum(entry["seconds"] or 0 for entry in document["compilations"])
    return (
        f"{document['id']} under torch {document['torch']}\n"
        f"{', '.join(counts)} in {plural(len(document['calls']), 'call')}; compiled for {duration(seconds)}"
    )


def _not_compiled(document: Mapping[str, Any]) -> str:
    """Frames that ran eagerly without an error, which is easily overlooked."""
    lines = []
    for hit in document["limits"]:
        calls = [str(call["call"]) for call in document["calls"] if hit["frame"] in call["eager"]]
        place = f"call{'s' if len(calls) > 1 else ''} {', '.join(calls or [str(hit['call'])])}"
        lines += [
            f"NOT COMPILED: {hit['frame']} ran eagerly in {place}, past {hit['limit']} = {hit['value']}",
            f"  last reason: {one_line(hit['reason'])}",
        ]
    lines += [
        f"NOT COMPILED: {entry['frame']} was given up in call {entry['call']} and ran eagerly\n"
        f"  reason: {telling(entry['failed'])}"
        for entry in document["compilations"]
        if entry["failed"] and document["raised"] is None
    ]
    return "\n".join(lines)


def _raised(document: Mapping[str, Any]) -> str:
    error = document["raised"]
    if error is None:
        return ""
    at = f"\n  at {error['at']}: {error['code']}" if error.get("at") else ""
    return f"RAISED in call {len(document['calls']) - 1}: {error['type']}: {one_line(error['message'])}{at}"


def _tables(document: Mapping[str, Any]) -> list[str]:
    """Calls, graphs, graph breaks and recompiles, each as a table where there is one."""
    calls = [
        [
            call["call"],
            *(_list(call[key]) for key in ("graphs_run", "compiled", "recompiled")),
            call["graph_breaks"],
            _list(call["eager"]),
        ]
        for call in document["calls"]
    ]
    graphs = [
        [graph["graph"], graph["compile_id"], graph["call"], graph["frame"], _operators(graph)]
        for graph in document["graphs"]
    ]
    breaks = [
        [
            graph_break["call"],
            graph_break["compile_id"],
            graph_break["at"] or "-",
            one_line(graph_break["code"] or "-", 60),
            telling(graph_break["reason"]),
        ]
        for graph_break in document["graph_breaks"]
    ]
    recompiles = [
        [
            recompile["call"],
            recompile["compile_id"],
            "\n".join(one_line(reason, _WIDTH) for reason in recompile["reasons"][:3]) or "-",
        ]
        for recompile in document["recompiles"]
    ]
    tables: list[tuple[list[list[object]], str]] = [
        (calls, "call, graphs run, compiled, recompiled, breaks, ran eagerly"),
        (graphs, "graph, compile, call, frame, operators"),
        (breaks, "call, compile, graph break at, statement, reason"),
        (recompiles, "call, recompile, reason (against each older compilation)"),
    ]
    return [draw_table(rows, headers.split(", ")) for rows, headers in tables if rows]


def _operators(graph: Mapping[str, Any]) -> str:
    """The operators of a graph, comma separated, in lines of at most 80 characters."""
    names = [name if count == 1 else f"{name} x{count}" for name, count in graph["operators"].items()]
    text = ",\t".join(names) + ("" if graph["compiled"] else " (not compiled: the backend raised)")
    lines = textwrap.wrap(
        text.replace(" ", "\0").replace("\t", " "), 80, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


def _guards(document: Mapping[str, Any]) -> str:
    """Guards by compilation, alike ones in one line; of a frame that was compiled again those that differ from the
    compilation before."""
    lines = []
    previous: dict[str, list[str]] = {}
    for compile_id, guards in document["guards"].items():
        frame = compile_id.partition("/")[0]
        novel = [guard for guard in guards if guard not in previous.get(frame, ())]
        title = f"{plural(len(guards), 'guard')} of {compile_id or '-'}"
        if frame in previous:
            title += ", those of the compilation before but for" if novel else ", those of the compilation before"
        previous[frame] = guards
        lines += [title, *_folded(novel)]
    return "\n".join(lines)


def _folded(guards: Sequence[str]) -> list[str]:
    """A line for each guard, with how many more differ from it in names and numbers of objects alone."""
    alike: dict[str, list[str]] = {}
    for guard in guards:
        alike.setdefault(_NAMES.sub("", guard), []).append(guard)
    return [
        f"  {one_line(first, _GUARD_WIDTH)}" + (f"  (and {len(others)} more alike)" if others else "")
        for first, *others in alike.values()
    ]


def _first_call(document: Mapping[str, Any]) -> str:
    explanation = document["first_call"]
    title = "torch._dynamo.explain, of the first call alone"
    if explanation["raised"]:
        return f"{title}: {explanation['raised']['type']}: {one_line(explanation['raised']['message'])}"
    lines = [
        f"{title}: {plural(explanation['graphs'], 'graph')}, "
        f"{plural(len(explanation['graph_breaks']), 'graph break')}, "
        f"{plural(explanation['operators'], 'operator')}, {plural(explanation['guards'], 'guard')}"
    ]
    reported = {(graph_break["at"], graph_break["reason"]) for graph_break in document["graph_breaks"]}
    lines += [
        f"  break at {graph_break['at'] or '-'}: {graph_break['code'] or '-'}: {telling(graph_break['reason'])}"
        for graph_break in explanation["graph_breaks"]
        if (graph_break["at"], graph_break["reason"]) not in reported and document["raised"]
    ]
    return "\n".join(lines)


def telling(reason: str) -> str:
    """One line of torch's reason for a break: what it is, and its explanation where there is one.

    Since 2.8 a reason begins with what was being traced (``... trace CALL: a function call, e.g. f(x, y):``).
    """
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()] or [""]
    if lines[0].endswith(":") and len(lines) > 1:
        lines = lines[1:]
    explained = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation: ")]
    return one_line(": ".join([lines[0], *explained[:1]]), _WIDTH)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "-"
