"""Which variants a change of the compiler can affect."""

from __future__ import annotations

import pytest

from runner.session.affected import Block, Candidate, LineMap, read_diff, read_place, select

NAMES = [f"v{number:02}" for number in range(20)]
MAP = LineMap.of(
    [(name, ["line _inductor/ir.py:1-9", "lowering aten.relu"]) for name in NAMES[3:]]
    + [
        ("v00", ["line _inductor/ir.py:1-9,20", "line fx/graph.py:5"]),
        ("v01", ["line _inductor/ir.py:20"]),
        ("v02", []),
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


def test_a_common_line_is_answered_by_a_varied_sample_within_a_share_of_the_time():
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
-b
+B
 c
-# a comment
+# another comment
@@ -30,2 +30,3 @@
 x
+new
 y
--- a/torch/csrc/a.cpp
+++ b/torch/csrc/a.cpp
@@ -3 +3 @@
-int a;
+int b;
"""


def test_a_diff_has_numbers_of_its_old_side_and_an_insertion_the_lines_around_it():
    assert read_diff(DIFF) == [
        Block("_inductor/ir.py", (11,)),
        Block("_inductor/ir.py", (30, 31)),
        Block("csrc/a.cpp", (3,)),
    ]
    assert read_diff("no diff") == []


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
