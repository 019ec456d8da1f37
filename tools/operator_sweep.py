"""Call operators that cases may use with wrong arguments, and report the calls that kill the process.

python tools/operator_sweep.py [--minutes 30] [--jobs 16] [--shard 1/4] [--seed 1] [--only aten.add] [--out deaths.jsonl]

A base call is a sample of torch's operator database, a call that ATen received while those samples ran, or a draw from the schema.
One or two of its arguments change: shapes, lengths, indices, sizes, numbers, layouts. A forked process makes the calls of a batch.
An allocator, preloaded, puts the end of each tensor at a page without access, so that a small overflow ends the process too.

``--only`` names operators whether the format allows them or not. The exit code is 1 if memory was corrupted, and 2 without g++.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CHECKER = r"""
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
extern "C" void __libc_free(void*);
extern "C" void* __libc_realloc(void*, size_t);
namespace {
const size_t PAGE = 4096, REGION = 1UL << 36, MOST = 1UL << 28;
struct Block { uint32_t pages, bytes; };
char* base; Block* blocks; std::atomic<size_t> top{0}, live{0};
uintptr_t stack_start; size_t stack_size;
void die(int, siginfo_t* info, void*) {
  uintptr_t at = (uintptr_t)info->si_addr;
  if (info->si_code == SI_KERNEL) _exit(92);
  if (at - (uintptr_t)base < REGION) _exit(90);
  if (at < 65536) _exit(91);
  _exit(stack_start - at < stack_size ? 93 : 92);
}
bool start() {
  static char other_stack[65536];
  char* memory = (char*)mmap(0, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  blocks = (Block*)mmap(0, REGION / PAGE * sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || (void*)blocks == MAP_FAILED) return false;
  rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  stack_start = (uintptr_t)&limit + 65536;
  stack_size = limit.rlim_cur > (1UL << 26) ? 1UL << 26 : limit.rlim_cur + (1UL << 20);
  stack_t alternative = {other_stack, 0, sizeof other_stack};
  sigaltstack(&alternative, 0);
  struct sigaction action = {};
  action.sa_sigaction = die;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, 0);
  base = memory;
  return true;
}
bool ours(void* p) { return base && (uintptr_t)p - (uintptr_t)base < REGION; }
Block& block_of(void* p) { return blocks[((char*)p - base) / PAGE]; }
bool filled(const char* from, const char* to) { while (from < to) if (*from++ != (char)0xA5) return false; return true; }
}
extern "C" int posix_memalign(void** out, size_t align, size_t bytes) {
  static bool ready = start();
  if (!ready || bytes > MOST || align > PAGE || live + bytes > 2 * MOST) return ENOMEM;
  if (!bytes) bytes = 1;
  size_t room = (bytes + align - 1) / align * align, size = (room + PAGE - 1) / PAGE * PAGE;
  size_t offset = top.fetch_add(size + PAGE);
  if (offset + size + PAGE > REGION || mprotect(base + offset, size, PROT_READ | PROT_WRITE)) return ENOMEM;
  char *begin = base + offset, *data = begin + size - room;
  memset(begin, 0xA5, data - begin);
  memset(data + bytes, 0xA5, room - bytes);
  if (bytes < 65536) memset(data, 0x5A, bytes);
  block_of(data) = {(uint32_t)(size / PAGE), (uint32_t)bytes};
  live += bytes;
  *out = data;
  return 0;
}
extern "C" void free(void* p) {
  if (!ours(p)) return __libc_free(p);
  char *data = (char*)p, *begin = base + (data - base) / PAGE * PAGE;
  Block block = block_of(data);
  size_t size = block.pages * PAGE;
  if (!size || !filled(begin, data) || !filled(data + block.bytes, begin + size)) _exit(94);
  block_of(data) = {0, 0};
  mmap(begin, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  live -= block.bytes;
}
extern "C" void* realloc(void* p, size_t bytes) {
  void* fresh = 0;
  if (!ours(p)) return __libc_realloc(p, bytes);
  if (posix_memalign(&fresh, 64, bytes)) return 0;
  size_t old = block_of(p).bytes;
  memcpy(fresh, p, old < bytes ? old : bytes);
  free(p);
  return fresh;
}
"""
"""An allocator for tensors (torch calls ``posix_memalign``), and a handler that tells by an exit code what a fault was at."""

ENDS = {
    90: "past the end of a tensor",
    91: "null pointer",
    92: "wild address",
    93: "stack overflow",
    94: "a write beside a tensor",
}
CORRUPT = frozenset({ENDS[90], ENDS[92], ENDS[94], "heap corrupted", "bus error"})
"""Ends that show an access to memory of others. The rest are assertions, divisions by zero and null pointers."""
SLOW = "slow"

PRELOADED = "OPERATOR_SWEEP_PRELOADED"
BATCH = 40  # calls of one process
DEATHS = 6  # after which an operator is left alone
SECONDS = 4  # of a processor, for one call
MEMORY = 1 << 30  # bytes of address space that a batch may add


class Sweep:
    """Batches of calls in forked processes, by one job."""

    def __init__(self, options: argparse.Namespace, recorded: Mapping[str, list[bytes]]) -> None:
        self._options, self._recorded = options, recorded
        self._place = RawArray("q", 2)  # index of the call, and how many calls came through
        self._text = RawArray("c", 4000)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the job

    def batch(self, name: str, number: int) -> Iterator[dict[str, Any]]:
        """Yield the deaths among the calls of one batch. The calls behind a death are made by a new process."""
        first, end = number * BATCH, (number + 1) * BATCH
        while first < end:
            reason = self._process(name, number, range(first, end))
            if reason is None:
                return
            index, text = self._place[0], self._text.value.decode(errors="replace")
            if reason != SLOW:
                alone = self._process(name, number, range(index, index + 1)) is not None
                yield {"name": name, "index": index, "reason": reason, "call": text, "alone": alone}
            first = index + 1

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return int(self._place[1])

    def _process(self, name: str, number: int, indices: range) -> str | None:
        """Make the calls in a process of their own. Return how it died; None if it lives to the end."""
        self._place[0], self._text.value = indices.start, b"before the first call"
        self._output.seek(0)
        self._output.truncate()
        child = os.fork()
        if not child:
            self._make_calls(name, number, indices)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return self._reason(status)

    def _reason(self, status: int) -> str | None:
        if not os.WIFSIGNALED(status):
            return ENDS.get(os.WEXITSTATUS(status))
        number = os.WTERMSIG(status)
        if number in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL, signal.SIGXCPU):
            return SLOW
        self._output.seek(0)
        output = self._output.read()[-2000:]
        if number == signal.SIGABRT and any(word in output for word in (b"corrupt", b"free()", b"invalid", b"munmap")):
            return "heap corrupted"
        return {signal.SIGBUS: "bus error"}.get(number, signal.Signals(number).name)

    def _make_calls(self, name: str, number: int, indices: range) -> None:
        os.dup2(self._output.fileno(), 1)
        os.dup2(self._output.fileno(), 2)
        grown = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (grown, grown))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.setrecursionlimit(400)
        warnings.simplefilter("ignore")
        torch.manual_seed(number)
        bases = Bases(name, self._recorded, random.Random(f"{self._options.seed} {name} {number}"))
        for index in indices:
            self._place[0] = index
            draw = random.Random(f"{self._options.seed} {name} {number} {index}")
            bases._draw = draw
            torch.manual_seed(index)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_REAL, 15 * SECONDS)
            try:
                base = bases.call()
                if base is None:
                    return
                call = Changes(draw).apply(base)
                self._text.value = str(call).encode()[:3999]
                differentiate(call.function(*call.args, **call.kwargs))
            except (Exception, KeyboardInterrupt):  # noqa: BLE001  a call that raises is as it should be
                pass
            finally:
                base = call = None
            self._place[1] += 1


def run_job(job: int, names: Sequence[str], recorded: Mapping[str, list[bytes]], options: argparse.Namespace) -> int:
    """Sweep over names in rounds until the time is over, or the calls are. Append deaths to the file."""
    sweep = Sweep(options, recorded)
    deaths: Counter[str] = Counter()
    rounds = 0
    with options.out.open("a") as file:
        for rounds in itertools.count():
            for name in names:
                if time.monotonic() > options.deadline or rounds * BATCH >= options.calls:
                    file.write(json.dumps({"job": job, "calls": sweep.calls, "rounds": rounds}) + "\n")
                    return rounds
                if deaths[name] < DEATHS:
                    for death in sweep.batch(name, rounds):
                        deaths[name] += 1
                        file.write(json.dumps(death) + "\n")
                        file.flush()
    return rounds


def report(options: argparse.Namespace, names: Sequence[str], seconds: float) -> int:
    """Print deaths by operator, with the shortest call of each. Return the exit code."""
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    jobs = [line for line in lines if "job" in line]
    deaths: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    for line in lines:
        if "reason" in line:
            deaths.setdefault((line["reason"] not in CORRUPT, line["name"]), []).append(line)
    for (harmless, name), fatal_lines in sorted(deaths.items()):
        shortest = min(fatal_lines, key=lambda line: (not line["alone"], len(line["call"])))
        kind = "died" if harmless else "CORRUPT"
        reasons = ", ".join(sorted({line["reason"] for line in fatal_lines}))
        print(f"{kind} {name}: {len(fatal_lines)} ({reasons})\n    {shortest['call'][:300]}  #{shortest['index']}")
    corrupt = sum(not harmless for harmless, _ in deaths)
    calls, rounds = sum(line["calls"] for line in jobs), min((line["rounds"] for line in jobs), default=0)
    print(
        f"torch {torch.__version__}, seed {options.seed}: {len(names)} operators, {calls} calls, {rounds} whole rounds, {seconds:.0f} s, "
        f"{corrupt} operators corrupt memory, {len(deaths) - corrupt} end otherwise"
    )
    return 1 if corrupt else 0


def sweep_all(options: argparse.Namespace) -> int:
    """Record base calls, share the operators among jobs, wait for these and report."""
    started = time.monotonic()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = options.only or allowed_names()
    random.Random(options.seed).shuffle(names)
    part, parts = options.shard
    names = names[part - 1 :: parts]
    entries_by_name()
    recorded = calls_of_aten(options.minutes / 4) if any(map(schemas_of, names)) and not options.no_records else {}
    print(
        f"{len(names)} operators, {len(recorded)} overloads recorded in {time.monotonic() - started:.0f} s", flush=True
    )
    options.deadline = started + 60 * options.minutes
    children = []
    for job in range(options.jobs):
        child = os.fork()
        if not child:
            run_job(job, names[job :: options.jobs], recorded, options)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return report(options, names, time.monotonic() - started)


def sweep_under_checker(argv: Sequence[str]) -> int:
    """Compile the allocator and start this program again under it. Return its exit code."""
    compiler = shutil.which("g++")
    if compiler is None:
        print("g++ is not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "checker.so")
        source = Path(folder, "checker.cpp")
        source.write_text(CHECKER)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), PRELOADED: "1", "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, __file__, *argv], env=environment, check=False).returncode


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 1/4")
    return int(part), int(parts)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="after which no further batch starts")
    parser.add_argument("--calls", type=float, default=float("inf"), help="of each operator, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="a part of the operators")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="NAME", help="operators, allowed or not")
    parser.add_argument(
        "--no-records", action="store_true", help="without the calls that ATen receives, which take a minute"
    )
    parser.add_argument("--out", type=Path, help="JSON lines: one for each death; no file of this name may exist")
    options = parser.parse_args(argv)
    if options.out and options.out.exists():
        parser.error(f"{options.out} exists")
    return options


def main(argv: Sequence[str]) -> int:
    """Sweep. Return 0, 1 if memory was corrupted, 2 if nothing could start."""
    options = parse(argv)
    if PRELOADED not in os.environ:
        return sweep_under_checker(argv)
    with tempfile.TemporaryDirectory() as folder:
        options.out = options.out or Path(folder, "deaths.jsonl")
        return sweep_all(options)


if PRELOADED in os.environ:  # only here is torch imported
    import torch
    from operator_calls import Bases, Changes, allowed_names, calls_of_aten, differentiate, entries_by_name, schemas_of

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
