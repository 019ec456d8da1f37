"""Which variants a change of the compiler can affect."""

from __future__ import annotations

import pytest

from runner.contract.lines import Lines
from runner.session import affected
from runner.session.affected import Block, Candidate, LineMap, read_diff, read_place, select

NAMES = [f"v{number:02}" for number in range(20)]
MAP = LineMap.of(
    [(name, Lines(["line _inductor/ir.py:1-9", "lowering aten.relu"])) for name in NAMES[3:]]
    + [
        ("v00", Lines(["line _inductor/ir.py:1-9,20", "line fx/graph.py:5"])),
        ("v01", Lines(["line _inductor/ir.py:20"])),
        ("v02", Lines()),
    ]
)
CANDIDATES = [
    Candidate(name, 2.0 if name == "v00" else 1.0, frozenset({f"op{number % 4}"})) for number, name in enumerate(NAMES)
]


def test_the_map_knows_the_variants_of_a_line():
    assert MAP.variants_of("_inductor/ir.py", 20) == {"v00", "v01"}
    assert MAP.variants_of("_inductor/ir.py", 21) == MAP.variants_of("none.py", 1) == frozenset()
    assert MAP.counts["v00"] == 11 and "v02" not in MAP.counts


def test_new_variants_come_first_then_those_of_a_rare_line_cheap_ones_first():
    selection = select(MAP, [Block("_inductor/ir.py", (20,))], CANDIDATES)
    assert [*selection.reasons] == ["v02", "v01", "v00"]
    assert selection.reasons["v01"] == "reaches a changed line that 2 of 19 reach"
    assert not selection.unknown and selection.sampled == 0


def test_a_common_line_is_answered_by_a_varied_sample_within_a_share_of_the_time(monkeypatch):
    monkeypatch.setattr(affected, "COMMON", 0.15)
    selection = select(MAP, [Block("_inductor/ir.py", (5,))], CANDIDATES)
    assert (selection.sampled, selection.common) == (3, 18), "15 % of 20 seconds"
    sample = [*selection.reasons][1:]
    assert len({int(name[1:]) % 4 for name in sample}) == 3, "different operators"


def test_what_nobody_knows_is_answered_by_all_the_specific_ones_first():
    blocks = [Block("csrc/dynamo/guards.cpp", (7,)), Block("fx/graph.py", (5,))]
    selection = select(MAP, blocks, CANDIDATES)
    assert [*selection.reasons][:2] == ["v02", "v00"] and len(selection.reasons) == 20
    assert selection.unknown == (blocks[0],) and str(blocks[0]) == "csrc/dynamo/guards.cpp:7"
    assert len(select(MAP, [Block("_inductor/ir.py", (500,))], CANDIDATES).reasons) == 20, "perhaps it runs at import"


def test_a_file_alone_means_all_its_lines():
    assert [*select(MAP, read_place("torch/fx/graph.py"), CANDIDATES).reasons] == ["v02", "v00"]


DIFF = """\
diff --git a/torch/_inductor/ir.py b/torch/_inductor/ir.py
--- a/torch/_inductor/ir.py
+++ b/torch/_inductor/ir.py
@@ -10,4 +10,4 @@ def f():
     a
-    b
+    B
     c
-    # a comment
+    # another comment
@@ -30,2 +30,3 @@
     x
+    new
     y
--- a/torch/csrc/a.cpp
+++ b/torch/csrc/a.cpp
@@ -3 +3 @@
-#define A 1
+#define A 2
"""


def test_a_diff_has_numbers_of_its_old_side_and_an_insertion_the_lines_around_it():
    assert read_diff(DIFF) == [
        Block("_inductor/ir.py", (11,)),
        Block("_inductor/ir.py", (30, 31)),
        Block("torch/csrc/a.cpp", (3,)),
    ]
    assert read_diff("no diff") == []


def hunk(*lines: str, file: str = "fx/graph.py", new: str = "") -> list[Block]:
    """The blocks of a hunk that begins at line 5."""
    counts = [sum(line[0] in signs for line in lines) for signs in (" -", " +")]
    head = f"--- a/torch/{file}\n+++ b/torch/{new or file}\n@@ -5,{counts[0]} +5,{counts[1]} @@\n"
    return read_diff(head + "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("lines", "blocks"),
    [
        (("-    # a comment", "+    x = 1"), [Block("fx/graph.py", (5, 6))]),
        (("     x", "+    ++ y", "+++ z"), [Block("fx/graph.py", (5, 6)), Block("fx/graph.py", (6,), True)]),
        (("---- 1", "+    y"), [Block("fx/graph.py", (5,), True)]),
        (("     a\x0cb", "-    y"), [Block("fx/graph.py", (6,))]),
        (("     a", "+#pragma omp"), [Block("fx/graph.py", (6,), True)]),
        (("     a", "-    b", "\\ No newline at end of file", "+    b"), [Block("fx/graph.py", (6,))]),
    ],
)  # fmt: skip
def test_lines_of_a_hunk(lines: tuple[str, ...], blocks: list[Block]):
    assert sorted(hunk(*lines), key=str) == sorted(blocks, key=str)


def test_a_renamed_file_has_its_old_name():
    assert hunk("-    a", "+    b", new="fx/later.py") == [Block("fx/graph.py", (5,))]


def test_a_file_that_only_moved_or_has_no_text_is_answered_by_all():
    moved = "diff --git a/torch/fx/a.py b/torch/fx/b.py\nsimilarity index 100%\nrename from torch/fx/a.py\nrename to torch/fx/b.py\n"
    binary = "diff --git a/acme/t.bin b/acme/t.bin\nBinary files a/acme/t.bin and b/acme/t.bin differ\n"
    changes = read_diff(moved + binary)
    assert changes == [Block("fx/a.py", (), True), Block("acme/t.bin", (), True)]
    assert select(MAP, changes, CANDIDATES).unknown == tuple(changes)


@pytest.mark.parametrize("line", ["LEVEL = 2", "@register(aten.add)", "    @property", "import os"])
def test_a_line_that_runs_at_import_is_answered_by_all_although_its_neighbours_are_reached(line: str):
    changes = hunk("     a", f"+{line}", "-    b", "+    c")
    assert Block("fx/graph.py", (6,), at_import=True) in changes
    selection = select(MAP, [*read_place("torch/fx/graph.py:5"), *changes], CANDIDATES)
    assert len(selection.reasons) == 20 and selection.unknown


def test_a_definition_that_is_not_indented_is_no_line_of_import():
    assert not any(block.at_import for block in hunk("-def f(", "+def g(", " ):", "-class A:", "+class B:"))


def test_tests_and_documents_run_nothing():
    changes = [Block(name, (1,)) for name in ("test/inductor/test_ir.py", "docs/a.rst", "README.md")]
    selection = select(MAP, changes, [each for each in CANDIDATES if each.id != "v02"])
    assert not selection.reasons and len(selection.tests) == 3
    assert [*select(MAP, [*changes, Block("fx/graph.py", (5,))], CANDIDATES).reasons] == ["v02", "v00"]


def test_a_package_may_lie_in_a_folder_of_the_checkout():
    line_map = LineMap.of([("v00", Lines(["line acme/ir.py:3"])), ("v01", Lines(["line acme/torch/ir.py:4"]))])
    candidates = [Candidate("v00"), Candidate("v01")]
    assert [*select(line_map, read_place("src/acme/ir.py:3"), candidates).reasons] == ["v00"]
    assert [*select(line_map, read_place("./src/acme/torch/ir.py:4"), candidates).reasons] == ["v01"]


def test_a_sample_is_within_its_time_also_where_all_operators_are_there():
    line_map = LineMap.of([(f"v{number:03}", Lines(["line fx/graph.py:5"])) for number in range(200)])
    for traits in (frozenset({"op"}), frozenset[str]()):
        candidates = [Candidate(name, 1.0, traits) for name in line_map.counts]
        assert len(select(line_map, [Block("fx/graph.py", (5,))], candidates).reasons) == 200 * affected.COMMON
    slow = [Candidate(name, 100.0) for name in [*line_map.counts][:12]]
    assert len(select(line_map, [Block("fx/graph.py", (5,))], slow).reasons) == 1, "at least one"


def test_a_sample_has_many_short_variants_rather_than_one_long_one():
    names = [f"v{number:03}" for number in range(200)]
    line_map = LineMap.of([(name, Lines(["line fx/graph.py:5"])) for name in names])
    candidates = [Candidate(name, 1.0, frozenset({f"op{number % 12}"})) for number, name in enumerate(names[1:])]
    long = Candidate(names[0], 9.0, frozenset(f"op{number}" for number in range(8)))
    selection = select(line_map, [Block("fx/graph.py", (5,))], [long, *candidates])
    assert long.id not in selection.reasons and selection.sampled == 10
    assert len({(int(name[1:]) - 1) % 12 for name in selection.reasons}) == 10, "different operators"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("torch/_inductor/ir.py:3-4,9", [Block("_inductor/ir.py", (3, 4)), Block("_inductor/ir.py", (9,))]),
        ("/home/me/pytorch/torch/fx/graph.py:5", [Block("fx/graph.py", (5,))]),
        ("acme/compile.py:5", [Block("acme/compile.py", (5,))]),
        ("./acme/compile.py", [Block("acme/compile.py")]),
        ("a.py:9-2", []),
    ],
)
def test_a_place_is_a_file_and_perhaps_lines(text: str, blocks: list[Block]):
    assert read_place(text) == blocks
