"""Bad files and bad arguments: a clear message at a place, the right exit code, never a traceback."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .driver import Result, environment, run_in, spec, write

GOOD = "name: good\ninputs: {x: [2]}\nchain: [torch.neg]\n"
HEAD = "cases:\n  - name: a\n    inputs: {x: [2]}\n"
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
BOMB += "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)) + "cases: *a9\n"

# file -> (text, where it is wrong, words that the message must have)
FILES: dict[str, tuple[str, str, str]] = {
    "unknown_key": (HEAD + "    chian: [torch.neg]\n", "4:5", "unknown key 'chian'.*did you mean 'chain'"),
    "wrong_type": (HEAD + "    chain: [torch.neg]\n    train: maybe\n", "5:12", "expected true or false.*'maybe'"),
    "wrong_shape": ("cases:\n  - name: a\n    inputs: {x: two}\n    chain: [torch.neg]\n", "3:17", "expected a shape.*'two'"),
    "missing_name": ("cases:\n  - inputs: {x: [2]}\n    chain: [torch.neg]\n", "2:5", "'name' is missing"),
    "bad_expression": (HEAD + "    chain:\n      - operator.mul: [$_, '${2 +}']\n", "5:31", r"\$\{2 \+\}.*not an expression"),
    "evil_expression": (
        HEAD + "    chain:\n      - operator.mul: [$_, '${__import__(\"os\")}']\n", "5:31", "no function '__import__'",
    ),
    "tab": ("cases:\n  - name: a\n\tinputs: {x: [2]}\n    chain: [torch.neg]\n", "3:1", "tab.*indentation.*spaces"),
    "duplicate_key": (HEAD + "    inputs: {x: [3]}\n    chain: [torch.neg]\n", "4:5", "'inputs' is here twice.*line 3"),
    "object_tag": (
        "cases:\n  - name: a\n    inputs: {x: !!python/object:os.system [2]}\n    chain: [torch.neg]\n",
        "3:17", "tag !!python/object:os.system",
    ),
    "object_apply_tag": (
        HEAD + "    chain: [torch.neg]\n    doc: !!python/object/apply:os.system ['touch OWNED']\n",
        "5:10", "tag !!python/object/apply:os.system",
    ),
    "alias_bomb": (BOMB, r"\d+:\d+", "aliases.*200000"),
    "load_operator": (HEAD + "    chain:\n      - torch.load: evil.pt\n", "5:9", "'torch.load' is refused.*files"),
    "system_operator": (HEAD + "    chain:\n      - os.system: touch OWNED\n", "5:9", "'os.system' is.*operator"),
    "huge_shape": (
        "cases:\n  - name: a\n    inputs: {x: [1000000, 1000000]}\n    chain: [torch.neg]\n",
        "3:14", r"\[1000000, 1000000\] takes 3.6\d* TiB, more than 4 GiB.*--limit tensor_bytes",
    ),
    "unknown_dtype": (HEAD + "    chain: [torch.neg]\n    dtypes: [float33]\n", "5:14", "dtype.*'float33'.*did you mean 'float32'"),
    "unknown_input_dtype": (
        "cases:\n  - name: a\n    inputs: {x: {shape: [2], dtype: int65}}\n    chain: [torch.neg]\n", "3:37", "dtype.*'int65'",
    ),
    "two_of_a_name": (spec(GOOD, GOOD), "5:11", "two cases are called 'good'.*line 2"),
    "empty": ("", "1:1", "empty"),
    "no_mapping": ("- 1\n", "1:1", "expected a mapping"),
    "module_not_allowed": ("cases:\n  - name: a\n    inputs: {x: [2]}\n    module: {file: model.py, name: Model}\n",
                           r"4:\d+", "brings Python of its own.*--allow-python"),
}  # fmt: skip
BROKEN_ALONE = "name: broken\ninputs: {x: [2]}\nchain: [torch.nge]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    write(folder, {"beside.spec.yaml": spec(GOOD, BROKEN_ALONE), "model.py": "raise RuntimeError('loaded')\n"})
    for name, (text, _, _) in FILES.items():
        (folder / f"{name}.spec.yaml").write_text(text)
    (folder / "latin.spec.yaml").write_bytes(HEAD.encode() + b"    doc: caf\xe9\n    chain: [torch.neg]\n")
    return folder


@pytest.fixture(scope="module")
def validated(folder: Path) -> Result:
    """All of them in one go. What needs the person's word is an error where its file is named."""
    return run_in(folder, "validate", ".", "module_not_allowed.spec.yaml", limit=20)


@pytest.fixture(scope="module")
def listed(folder: Path) -> Result:
    return run_in(folder, "list", ".", limit=20)


@pytest.mark.parametrize("name", FILES)
def test_names_the_place_and_the_reason(name: str, validated: Result, listed: Result) -> None:
    _, place, words = FILES[name]
    for result in (validated, listed):
        assert result.code == 4
        message = rf"^{name}\.spec\.yaml:{place}: error: (?:(?!: error: )[\s\S])*?{words.replace('.*', '(?:(?!: error: )[^$])*?')}"
        assert re.search(message, result.err, re.MULTILINE), result.err


def test_shows_the_line_and_a_caret(validated: Result) -> None:
    excerpt = "unknown_key.spec.yaml:4:5: error: unknown key 'chian'\n   4 |     chian: [torch.neg]\n     |     ^^^^^\n"
    assert excerpt in validated.err


def test_a_file_that_is_not_utf8(validated: Result) -> None:
    assert "latin.spec.yaml:4:13: error: this file is not UTF-8: byte 0xe9" in validated.err


def test_nothing_of_it_ran(validated: Result, listed: Result, folder: Path) -> None:
    assert not (folder / "OWNED").exists()
    assert validated.code == listed.code == 4


def test_what_is_valid_beside_it_is_listed(listed: Result, validated: Result) -> None:
    assert "beside.spec.yaml::good[float32,cpu]@inductor" in listed.out.splitlines()
    assert "beside.spec.yaml::broken" not in listed.out
    assert "beside.spec.yaml:7:13: error: unknown operator 'torch.nge'" in listed.err
    assert re.match(r"\d valid cases, \d variants, \d\d errors, 0 warnings$", validated.out.strip())


def test_nothing_that_is_broken_is_listed(listed: Result) -> None:
    assert set(listed.out.splitlines()) == {
        "beside.spec.yaml::good[float32,cpu]@inductor",
        "two_of_a_name.spec.yaml::good[float32,cpu]@inductor",  # the first of the two
    }


def test_what_is_valid_beside_it_runs(stand_in_here: None, folder: Path, tmp_path: Path) -> None:
    result = run_in(tmp_path, "run", folder / "beside.spec.yaml", "--backend", "eager")
    assert result.code == 4
    assert result.verdicts == {"good@eager": "PASS"}
    assert "unknown operator 'torch.nge'" in result.err


PATHS = [
    (["list", "nowhere"], 4, "no such file or directory: nowhere"),
    (["run", "nowhere.spec.yaml"], 4, "no such file or directory: nowhere.spec.yaml"),
    (["validate", "nowhere"], 4, "no such file or directory: nowhere"),
    (["run", "empty"], 5, "empty: no .suite.yaml and no .spec.yaml"),
    (["list", "others"], 5, "others: no .suite.yaml and no .spec.yaml"),
    (["validate", "others"], 5, "others: no .suite.yaml and no .spec.yaml"),
    (["list", "others/notes.txt"], 4, "notes.txt: cases end in .spec.yaml"),
    (["run", "manual"], 5, "manual: true"),
    (["list", "one.spec.yaml::onne"], 4, "no case matches 'onne'.*did you mean 'one'"),
    (["run", "one.spec.yaml", "-k", "(one"], 4, "-k.*'[(]one'.*not closed"),
    (["run", "one.spec.yaml", "-k", "one and"], 4, "-k.*word is missing"),
    (["run", "one.spec.yaml", "-k", " "], 4, "-k.*empty"),
    (["run", "one.spec.yaml", "-k", "conv"], 5, "nothing selected: none of 1 variant is left"),
    (["list", "one.spec.yaml", "-k", "not one"], 5, "nothing selected"),
    (["run", "one.spec.yaml", "--python", "/nowhere/python"], 4, "/nowhere/python: no such Python"),
    (["run", "one.spec.yaml", "--python", "one.spec.yaml"], 4, "one.spec.yaml is not an executable file"),
    (["run", "one.spec.yaml", "--python", "/bin/true"], 4, "/bin/true does not work as a Python"),
    (["run", "one.spec.yaml", "--limit", "tensor_byte=1GiB"], 4, "did you mean 'tensor_bytes'"),
    (["run", ""], 4, "an empty path; did a shell variable have no value"),
    (["list", ""], 4, "an empty path"),
    (["show", ""], 4, "an empty path"),
    (["run", "::one"], 5, "every suite here says manual: true"),
    (["run", "plain::onne"], 4, "no case matches 'onne'.*did you mean 'one'"),
    (["repro", "./plain/::onne"], 4, "no case matches 'onne'"),
    (["list", "x" * 300], 4, "(x: File name too long|no such file or directory: x)"),
    (["list", "one.spec.yaml", "--device", ""], 4, "--device '': expected a device"),
    (["list", "one.spec.yaml", "--device", "cpu:x"], 4, "--device 'cpu:x': expected a device"),
    (["run", "one.spec.yaml", "-j", "0"], 4, "'0' is no whole number from 1 to 1024"),
    (["run", "one.spec.yaml", "-j", "99999999999999999999"], 4, "no whole number from 1 to 1024"),
    (["run", "one.spec.yaml", "--budget", "-5s"], 4, "a value that begins with - is written --budget=VALUE"),
    (["run", "one.spec.yaml", "--junit", "."], 4, "--junit .: this is a folder"),
    (["run", "one.spec.yaml", "--events", "typo/log.jsonl"], 4, "there is no folder .*/typo; to make it: mkdir -p"),
    (["run", "one.spec.yaml", "--junit", "one.spec.yaml"], 4, "this command reads that file"),
    (["run", "one.spec.yaml", "--junit", "a", "--events", "./a"], 4, "--events ./a: --junit names the same file"),
    (["bench", "one.spec.yaml", "--plot", "typo/a.svg"], 4, "--plot typo/a.svg: there is no folder"),
    (["diagnose", "one.spec.yaml::one", "--html", "."], 4, "--html .: this is a folder"),
    (["debug", "one.spec.yaml::one", "-o", "typo/out"], 4, "--output typo/out: there is no folder"),
    (["issue", "one.spec.yaml::one", "-o", "."], 4, "--output .: this is a folder"),
    (["report", "."], 4, "no event log in /"),
    (["run", "one.spec.yaml", "--backend", "nope"], 4, "--backend nope: no such backend"),
    (["run", "one.spec.yaml", "--backend", "indutcor"], 4, "did you mean 'inductor'"),
    (["run", "one.spec.yaml", "--backend", ""], 4, "--backend '': the name is empty"),
    (["list", "one.spec.yaml", "--backend", ""], 4, "--backend '': the name is empty"),
    (["run", "one.spec.yaml", "--backend", "nosuchmod:f"], 4, "--backend nosuchmod:f: .* has no module 'nosuchmod'"),
    (["run", "one.spec.yaml", "--import", "nosuchmod"], 4, "--import nosuchmod: .* has no module 'nosuchmod'"),
    (["bench", "one.spec.yaml", "--import", "nosuchmod"], 4, "has no module 'nosuchmod'"),
    (["diagnose", "one.spec.yaml::one", "--backend", "nope"], 4, "--backend nope: no such backend"),
    (
        ["run", "suites/unknown.suite.yaml"],
        4,
        "unknown.suite.yaml:3:12: error: no installed package registers backend 'indutcor'",
    ),
    (["run", "suites/system.suite.yaml"], 4, "system.suite.yaml:3:12: error: backend 'torch:os.system' is refused"),
    (["run", "one.spec.yaml", "-j", "many"], 4, "-j"),
    (["run", "one.spec.yaml", "--junit-dialect", "nunit"], 4, "nunit"),
    (["run"], 4, "PATH"),
    (["frobnicate"], 4, "frobnicate"),
    (["report", "nowhere"], 4, "no event log at nowhere"),
    (["report", "one.spec.yaml"], 4, "one.spec.yaml is no event log"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths")
    text = spec(GOOD.replace("good", "one"))
    named = "suite: s\nspecs: ['../one.spec.yaml']\nbackends: [{}]\nmanual: true\n"
    manual = "suite: by_hand\nmanual: true\nspecs: ['*.spec.yaml']\n"
    write(
        folder,
        {
            "one.spec.yaml": text,
            "others/notes.txt": "",
            "manual/hand.suite.yaml": manual,
            "manual/one.spec.yaml": text,
            "plain/one.spec.yaml": text,
            "suites/unknown.suite.yaml": named.format("indutcor"),
            "suites/system.suite.yaml": named.format("'torch:os.system'"),
        },
    )
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(("args", "code", "words"), PATHS, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_paths_and_arguments(args: list[str], code: int, words: str, paths: Path) -> None:
    result = run_in(paths, *args, limit=20)
    assert result.code == code, result.text
    assert re.search(words, result.err, re.DOTALL), result.err
    assert result.folder is None, "something ran"


def test_a_case_named_by_its_folder_beside_a_broken_file(tmp_path: Path) -> None:
    write(tmp_path, {"one.spec.yaml": spec(GOOD), "two.spec.yaml": spec(GOOD), "bad.spec.yaml": FILES["tab"][0]})
    missing = run_in(tmp_path, "run", "::zzz", limit=20)
    assert (missing.code, missing.folder) == (4, None), missing.text
    assert "no case that can be read matches 'zzz'" in missing.err and "bad.spec.yaml:3:1: error" in missing.err
    present = run_in(tmp_path, "list", "./::good[float32,cpu]@inductor", limit=20)
    assert present.code == 4 and "bad.spec.yaml:3:1: error" in present.err
    ids = ["one.spec.yaml::good[float32,cpu]@inductor", "two.spec.yaml::good[float32,cpu]@inductor"]
    assert present.out.splitlines() == ids


@pytest.mark.parametrize(
    "env",
    [{"LANG": "C", "LC_ALL": "C"}, {"TMPDIR": "/nowhere"}, {"HOME": "/nowhere"}, {"TMPDIR": "/" + "x" * 300}],
    ids=lambda env: next(iter(env)),
)
def test_an_environment_that_is_poor(env: dict[str, str], paths: Path) -> None:
    result = run_in(paths, "run", "one.spec.yaml", "--device", "cuda", "--backend", "eager", env=env)
    assert (result.code, result.err) == (0, ""), result.text


def test_an_interpreter_without_torch(paths: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    result = run_in(paths, "run", "one.spec.yaml", "--python", bare / "bin" / "python", limit=20)
    assert result.code == 4
    assert re.search(r"bare/bin/python .* has no torch: .*pip install torch", result.err)


def test_a_module_needs_the_persons_word(paths: Path, tmp_path: Path) -> None:
    model = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.neg()\n"
    case = "name: own\ninputs: {x: [2]}\nmodule: {file: model.py, name: Model}\n"
    write(tmp_path, {"model.py": model, "own.spec.yaml": spec(case)})
    refused = run_in(tmp_path, "run", "own.spec.yaml", "--backend", "eager", limit=20)
    assert refused.code == 4
    assert refused.folder is None
    assert run_in(tmp_path, "list", "own.spec.yaml", "--allow-python").code == 0
    refusal = run_in(tmp_path, "run", "own.spec.yaml", "--allow-python", "--events", "model.py", limit=20)
    assert (refusal.code, "--events model.py: this command reads that file" in refusal.err) == (4, True)
    assert (tmp_path / "model.py").read_text() == model


def test_an_absent_device_is_skipped(paths: Path) -> None:
    result = run_in(paths, "run", "one.spec.yaml", "--device", "cuda", "--backend", "eager")
    cuda = result.finished["one[float32,cuda]@eager"]
    if cuda["verdict"] == "PASS":
        pytest.skip("this machine has CUDA")
    assert result.code == 0
    assert cuda["verdict"] == "SKIP"
    assert "no device cuda" in cuda["reason"]
    assert re.search(r"SKIP \[ +0\.\d\ds\] one\.spec\.yaml::one\[float32,cuda\]@eager .* - no device cuda", result.out)
    skipped = result.junit.find(".//testcase/skipped")
    assert skipped is not None
    assert skipped.get("type") == "requires"


# --- odd files and odd surroundings ------------------------------------------------------------------


def test_odd_files_do_not_hide_their_neighbours(tmp_path: Path) -> None:
    good = spec(GOOD)
    write(tmp_path, {"good.spec.yaml": good, "a::b/two words.spec.yaml": good, "dotted.spec.yaml": "\ufeff" + good})
    (tmp_path / "crlf.spec.yaml").write_bytes(good.replace("\n", "\r\n").encode())
    (tmp_path / "utf16.spec.yaml").write_text(good, encoding="utf-16")
    (tmp_path / "nul.spec.yaml").write_text("cases: \0")
    (tmp_path / "deep.spec.yaml").write_text("cases: " + "[" * 5000 + "]" * 5000)
    (tmp_path / "large.spec.yaml").write_text("# " + "x" * (5 << 20))
    result = run_in(tmp_path, "list", ".", limit=20)
    assert result.code == 4
    assert [line.partition("::good")[0] for line in result.out.splitlines()] == [
        "a::b/two words.spec.yaml", "crlf.spec.yaml", "dotted.spec.yaml", "good.spec.yaml",
    ]  # fmt: skip
    for words in ("utf16.spec.yaml:1:1: error: .*not UTF-8", "nul.spec.yaml:1:8: error: .*U\\+0000", "deep.spec.yaml:1:\\d+: error: nested deeper",
                  "large.spec.yaml:1:1: error: .*larger than 1 MiB"):  # fmt: skip
        assert re.search(words, result.err), result.err
    named = run_in(tmp_path, "list", "a::b/two words.spec.yaml::good")
    assert named.out == "a::b/two words.spec.yaml::good[float32,cpu]@inductor\n"


@pytest.mark.parametrize("command", ["list", "validate"])
def test_what_is_no_file_does_not_hide_its_neighbours(command: str, tmp_path: Path) -> None:
    write(tmp_path, {"good.spec.yaml": spec(GOOD)})
    (tmp_path / "dangling.spec.yaml").symlink_to("nowhere")
    (tmp_path / "loop.spec.yaml").symlink_to("loop.spec.yaml")
    (tmp_path / "folder.spec.yaml").mkdir()
    os.mkfifo(tmp_path / "fifo.spec.yaml")
    result = run_in(tmp_path, command, ".", limit=20)
    assert ("good.spec.yaml::good" if command == "list" else "1 valid case") in result.out


def test_too_many_variants_do_not_hide_their_neighbours(tmp_path: Path) -> None:
    digits = ", ".join(map(str, range(1, 11)))
    axes = "name: axes\nparams: {" + ", ".join(f"{name}: [{digits}]" for name in "abcdef") + "}\n"
    axes += 'inputs: {x: ["${a}", "${b}", "${c}", "${d}", "${e}", "${f}"]}\nchain: [torch.neg]'
    write(tmp_path, {"good.spec.yaml": spec(GOOD), "axes.spec.yaml": spec(axes)})
    result = run_in(tmp_path, "list", ".", limit=20)
    assert result.code == 4
    assert (
        "axes.spec.yaml:2:11: error: the axes of case 'axes' multiply to 1000000 variants, more than 100000"
        in result.err
    )
    assert result.out == "good.spec.yaml::good[float32,cpu]@inductor\n"


def test_output_that_cannot_be_encoded(tmp_path: Path) -> None:
    write(tmp_path, {"h\u00e9.spec.yaml": spec(GOOD)})
    result = run_in(tmp_path, "list", ".", env={"PYTHONIOENCODING": "ascii"})
    assert (result.code, result.out) == (0, "h\\xe9.spec.yaml::good[float32,cpu]@inductor\n")


def test_output_that_is_closed(paths: Path) -> None:
    words = f"{sys.executable} -m runner run one.spec.yaml --device cuda --backend eager >&-"
    process = subprocess.run(
        ["bash", "-c", words], cwd=paths, env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_a_working_directory_that_is_gone(paths: Path, tmp_path: Path) -> None:
    words = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -m runner list {paths}/one.spec.yaml"
    process = subprocess.run(
        ["bash", "-c", words], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (4, "runner: the current folder is gone\n")


def test_somebodys_own_file_where_runs_are_kept(paths: Path, tmp_path: Path) -> None:
    (tmp_path / ".runner").write_text("mine")
    result = run_in(tmp_path, "run", paths / "one.spec.yaml", "--device", "cuda", "--backend", "eager")
    assert result.code == 0
    assert "warning: cannot keep runs here" in result.out
    assert (tmp_path / ".runner").read_text() == "mine"


# --- files that cannot be written --------------------------------------------------------------


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own, if this process may mount one."""
    folder.mkdir()
    process = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if process.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    with contextlib.ExitStack() as stack:
        yield lambda options: stack.enter_context(mounted(tmp_path / options.replace("=", "_"), options))


def test_a_full_disk_does_not_end_the_run(unwritable: Callable[[str], Path], paths: Path) -> None:
    """Neither the working directory, nor the report, nor the log that was asked for can be written. No variant needs a process."""
    full = unwritable("size=20k")
    (full / "junit.xml").write_text("what was there before")
    device = full / "device"  # /dev/full, but not the machine's own
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    with contextlib.suppress(OSError), open(full / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 512)
    result = run_in(
        full, "run", paths / "one.spec.yaml", "--device", "cuda:99", "--junit", "junit.xml", "--events", "device"
    )
    assert "SKIP [" in result.out
    assert "1 skip" in result.out
    assert result.code == 3  # what was asked for is not there
    assert re.search(
        r"warning: the journal device cannot be written \(No space left on device\); the run goes on", result.out
    )
    assert re.search(r"warning: .*/junit\.xml could not be written: .*No space left on device", result.out)
    assert (full / "junit.xml").read_text() == "what was there before"
    closing = next(line for line in result.out.splitlines() if line.startswith("reports:"))
    assert "device" not in closing and f"{full}/junit.xml" not in closing and ", junit.xml" not in closing
    assert not [*full.glob(".*.tmp")]
    assert device.is_char_device()


def test_a_read_only_working_directory(
    stand_in_here: None, unwritable: Callable[[str], Path], paths: Path, tmp_path: Path
) -> None:
    folder = unwritable("ro")
    occupied_folder = tmp_path / "taken"
    occupied_folder.mkdir()
    result = run_in(folder, "run", paths / "one.spec.yaml", "--backend", "eager")
    warning = re.search(r"warning: cannot keep runs here \(Read-only file system\); this one is in (/\S+)", result.out)
    assert warning is not None, result.text
    assert "1 passed" in result.out
    assert result.code == 0
    junit_run = run_in(folder, "run", paths / "one.spec.yaml", "--junit", "report.xml")
    assert (junit_run.code, "no permission to write in" in junit_run.err) == (4, True)
    run_folder = Path(warning[1])
    assert "<testsuites" in (run_folder / "junit.xml").read_text()
    again = run_in(folder, "report", run_folder)
    assert again.code == 0
    assert "1 passed" in again.out
    refused = run_in(folder, "report", run_folder, "--junit", occupied_folder)
    assert (refused.code, "this is a folder" in refused.err) == (4, True)
    assert run_in(folder, "validate", paths / "one.spec.yaml").code == 0


def test_a_full_disk_under_the_runs_own_folder(stand_in_here: None, paths: Path, tmp_path: Path) -> None:
    """No file may pass 2 KiB: the log does, the report does not."""
    words = f"ulimit -f 2; exec {sys.executable} -m runner run {paths}/one.spec.yaml --backend eager"
    process = subprocess.run(
        ["bash", "-c", words], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert process.returncode == 3, process.stdout + process.stderr
    assert re.search(r"warning: the journal .*/events\.jsonl cannot be written \(File too large\)", process.stdout)
    closing = next(line for line in process.stdout.splitlines() if line.startswith("reports:"))
    assert "junit.xml" in closing and "events.jsonl" not in closing
    assert "Traceback" not in process.stderr


# --- streams that cannot be written ------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("run nosuch 2>/dev/full", 4, ""),
        ("frobnicate 2>/dev/full", 4, ""),
        ("list bad.spec.yaml >/dev/full", 4, "unknown key"),
        ("list many.spec.yaml >/dev/full", 3, "standard output cannot be written: No space left on device"),
        ("--help >/dev/full", 3, "standard output cannot be written"),
        ("run one.spec.yaml --device cuda >/dev/full", 3, "standard output could not be written"),
        ("list one.spec.yaml <&- >&- 2>&-", 0, ""),
        ("run one.spec.yaml --device cuda <&- >&- 2>&-", 0, ""),
        ("list many.spec.yaml | head -1", 0, ""),
        ("list many.spec.yaml bad.spec.yaml | head -1", 4, "unknown key"),
        ("run one.spec.yaml --device cuda | head -1", 0, ""),
    ],
)
def test_a_stream_that_cannot_be_written(words: str, code: int, message: str, paths: Path, tmp_path: Path) -> None:
    many = (
        "name: many\nparams: {n: ["
        + ", ".join(map(str, range(3000)))
        + "]}\ninputs: {x: [2]}\nchain: [{torch.add: [$x, $n]}]"
    )
    write(tmp_path, {"many.spec.yaml": spec(many), "bad.spec.yaml": FILES["unknown_key"][0]})
    write(tmp_path, {"one.spec.yaml": spec(GOOD)})
    process = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m runner {words}; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == code, process.stdout[-500:] + process.stderr
    assert message in process.stderr
    assert "Traceback" not in process.stderr and "Exception ignored" not in process.stderr


def test_the_log_of_an_earlier_run_is_replaced(paths: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("old\n")
    result = run_in(paths, "run", "one.spec.yaml", "--device", "cuda", "--events", log)
    assert result.folder is not None
    assert log.read_text() == (result.folder / "events.jsonl").read_text()
