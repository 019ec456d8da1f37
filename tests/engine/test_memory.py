"""How much of what a job's processes hold counts towards its limit, on made-up process tables."""

from __future__ import annotations

import pytest

from runner.engine.process_tree import ALLOWANCE, HeldMemory, Meter, Process, is_compiler, machine_memory

SERVER, JOB = 900_000_001, 900_000_002  # beyond what Linux gives out, so that nothing is read from a real process
MIB = 1 << 20


def table(*lines: tuple[int, int, str, int, bool]) -> dict[int, Process]:
    """A server of 500 MiB, and ``lines`` of pid, parent, name, MiB, copy."""
    everyone = [(SERVER, 1, "python3", 500, False), *lines]
    return {
        pid: Process(pid, parent, JOB, JOB, False, size * MIB, copy, name)
        for pid, parent, name, size, copy in everyone
        if pid != SERVER
    } | {SERVER: Process(SERVER, 1, SERVER, SERVER, False, 500 * MIB, False, "python3")}


def test_what_the_server_held_does_not_count() -> None:
    assert Meter(JOB).read(table((JOB, SERVER, "python3", 600, True))) == HeldMemory(100 * MIB, 0)
    assert Meter(JOB).read(table((JOB, SERVER, "python3", 400, True))) == HeldMemory(0, 0)


def test_what_a_living_worker_held_before_its_job_does_not_count() -> None:
    meter = Meter(JOB, 650 * MIB)
    assert meter.read(table((JOB, SERVER, "python3", 600, True))) == HeldMemory(0, 0)
    assert meter.read(table((JOB, SERVER, "python3", 700, True), (3, JOB, "sort", 5, False))) == HeldMemory(55 * MIB, 0)


def test_what_a_copy_shared_at_first_sight_does_not_count() -> None:
    meter = Meter(JOB)
    job = (JOB, SERVER, "python3", 700, True)
    assert meter.read(table(job, (3, JOB, "python3", 700, True))).own == 200 * MIB  # on its way to another program
    assert meter.read(table((JOB, SERVER, "python3", 900, True), (3, JOB, "python3", 800, True))).own == 500 * MIB
    assert meter.read(table(job, (3, JOB, "python3", 30, False))).own == 230 * MIB  # now it has started one


def test_compilers_and_what_they_start_are_apart() -> None:
    held = Meter(JOB).read(
        table(
            (JOB, SERVER, "python3", 600, True),
            (3, JOB, "sh", 1, False),
            (4, 3, "g++", 2, False),
            (5, 4, "cc1plus", 700, False),
            (6, JOB, "nvcc", 3, False),
            (7, 6, "sh", 1, False),
            (8, 7, "no-such-pass", 40, False),
            (9, JOB, "sort", 5, False),
        )
    )
    assert held == HeldMemory(106 * MIB, 746 * MIB)


def test_a_job_that_calls_itself_a_compiler_is_none() -> None:
    assert Meter(JOB).read(table((JOB, SERVER, "cc1plus", 600, True))) == HeldMemory(100 * MIB, 0)


def test_only_what_passes_the_limit_is_reported() -> None:
    assert HeldMemory(512 * MIB, ALLOWANCE).over(512 * MIB) == ""
    assert HeldMemory(1024 * MIB, 0).over(512 * MIB) == "resident set 1.0 GiB passed the limit of 512 MiB"
    assert HeldMemory(256 * MIB, ALLOWANCE + 512 * MIB).over(512 * MIB) == (
        "resident set 256 MiB and compilers 512 MiB beyond their 2.0 GiB passed the limit of 512 MiB"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("cc1plus", "clang++-17", "aarch64-linux-gnu-g++-12", "ld.lld", "ptxas")),
        *((name, False) for name in ("python3.11", "python3", "world", "cat", "", "g++-wrapper")),
    ],
)
def test_names_of_compilers(name: str, expected: bool) -> None:
    assert is_compiler(Process(JOB, 1, 1, 1, False, 0, False, name)) is expected


def test_this_machine_has_memory() -> None:
    assert machine_memory() > 64 * MIB
