"""Which GPU is leased to which job; no GPU is needed for that."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from runner.engine import gpus


@pytest.mark.parametrize(
    ("given", "count", "expected"),
    [
        (None, 3, ("0", "1", "2")),
        (None, 0, ()),
        ("", 0, ()),
        ("2,0", 2, ("2", "0")),
        (" GPU-1b2c , MIG-77 ", 2, ("GPU-1b2c", "MIG-77")),
        ("3,-1,1", 1, ("3",)),  # CUDA stops at the first that it does not know
        ("3,-1,1", 8, ("3",)),
        ("-1", 8, ()),
        ("NoDevFiles", 8, ()),
        ("0,,1", 8, ("0",)),
        ("0,1,0", 8, ()),
        ("1,01", 8, ()),
        ("GPU-1,GPU-1", 8, ()),
        ("GPU-1,0", 8, ("GPU-1", "0")),
        ("1gpu,+2", 8, ("1", "2")),  # as strtoul reads numbers
        ("9" * 5000, 8, ("9" * 5000,)),
    ],
)
def test_names_of_the_visible(given: str | None, count: int, expected: tuple[str, ...]) -> None:
    assert gpus.visible_gpus(given, count) == expected


def test_the_least_taken_is_chosen_and_the_first_of_equals() -> None:
    assert gpus.choose_gpu((), []) == ""
    assert gpus.choose_gpu(("5", "2"), []) == "5"
    assert gpus.choose_gpu(("5", "2"), ["5", ""]) == "2"
    assert gpus.choose_gpu(("5", "2"), ["5", "2", "2"]) == "5"


@pytest.mark.parametrize(
    ("slots", "count", "expected"),
    [(1, 1, 1.0), (4, 4, 1.0), (3, 8, 1.0), (4, 2, 0.5), (5, 2, 1 / 3), (16, 1, 1 / 16), (2, 0, 1.0)],
)
def test_shares(slots: int, count: int, expected: float) -> None:
    assert gpus.memory_share(slots, count) == expected


@pytest.mark.parametrize(("slots", "count"), [(1, 1), (3, 4), (4, 4), (7, 3), (16, 2)])
def test_no_gpu_is_given_to_more_jobs_than_the_share_allows(slots: int, count: int) -> None:
    names = gpus.visible_gpus(None, count)
    leases: list[str] = []
    for step in range(300):
        if len(leases) == slots:
            del leases[step * 7 % slots]
        leases.append(gpus.choose_gpu(names, leases))
        assert max(Counter(leases).values()) * gpus.memory_share(slots, count) <= 1 + 1e-9


@pytest.mark.parametrize(("visible", "expected"), [
    (None, 2), ("", 0), ("1", 1), ("0,1,2", 2), ("-1", 0), ("NoDevFiles", 0), ("7,0", 0), ("1,7,0", 1), ("0,0", 0), ("GPU-1", 1),
    ("9" * 5000, 0),
])  # fmt: skip
def test_control_counts_gpus_without_torch(
    visible: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv(gpus.VARIABLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(gpus.VARIABLE, visible)
    assert gpus.count_gpus(str(tmp_path)) == expected
    assert gpus.count_gpus(str(tmp_path / "none")) == 0
