"""Python files that a spec file names: which may be named, and what is in them. None is imported here."""

from __future__ import annotations

from pathlib import Path

from runner.cases.limits import show_size
from runner.cases.problems import Problems
from runner.cases.yaml.tree import YamlScalar
from runner.files import read_text


def resolve_python_file(path: YamlScalar, file: str, problems: Problems) -> Path | None:
    """Return the path of the Python file that ``path`` names, in the folder of the spec file ``file`` or below.

    Anything else is reported. Returns None where the file cannot even be read.
    """
    try:
        named = Path(file).parent / str(path.value)
        full = named.resolve()
        if not full.exists():
            is_link = named.is_symlink()
            message = f"{path.value!r} is a link to no file" if is_link else f"no file {path.value!r} beside this one"
            problems.error(path.span, message)
        elif not full.is_file():
            problems.error(path.span, f"{path.value!r} is no regular file")
        elif Path(file).resolve().parent not in full.parents:
            problems.error(path.span, f"{path.value!r} lies outside this file's folder")
        elif full.stat().st_size > problems.limits.file_bytes:
            message = f"{path.value!r} is larger than {show_size(problems.limits.file_bytes)}"
            problems.error(path.span, message, problems.limits.hint("file_bytes"))
            return None
        else:
            read_text(full)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, no UTF-8 in the file, a circle of links
        problems.error(path.span, f"{path.value!r} cannot be read: {error}")
        return None
    return full
