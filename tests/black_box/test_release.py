"""What a release holds: the sdist, the wheel that is built from it, and the wheel installed in a new environment.

Nothing is downloaded: the builder is installed, and the new environment imports torch and the dependencies of this Python.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

import pytest

import runner

from .driver import REPOSITORY, environment

pytestmark = pytest.mark.slow
INFO = f"torch_spec_runner-{runner.__version__}.dist-info"
SCRIPT = "[console_scripts]\nrunner = runner.cli.main:main\n"
CASE = "cases:\n  - name: relu\n    inputs: {x: [4]}\n    chain: [F.relu]\n"
SKIPPED = shutil.ignore_patterns("__pycache__")


def tracked(*folders: str) -> set[str]:
    """Return the files of folders of this checkout, without what Python compiled."""
    paths = (path for folder in folders for path in (REPOSITORY / folder).rglob("*"))
    return {
        path.relative_to(REPOSITORY).as_posix() for path in paths if path.is_file() and "__pycache__" not in path.parts
    }


def wheel_files() -> set[str]:
    """Return what a wheel has to hold, but for its metadata: the package, the schemas and the shipped cases."""
    moved = {"schema/": "runner/_schema/", "specs/": "runner/_specs/"}
    data = {moved[f"{path.partition('/')[0]}/"] + path.partition("/")[2] for path in tracked("schema", "specs")}
    return tracked("runner") | data


def wheel_faults(names: Iterable[str]) -> list[str]:
    """Return what a wheel lacks, and what it should not hold."""
    expected = wheel_files() | {
        f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }
    return [f"lacks {name}" for name in sorted(expected - {*names})] + [
        f"holds {name}" for name in sorted({*names} - expected)
    ]


def sdist_faults(names: Iterable[str]) -> list[str]:
    """Return what an sdist lacks of the sources, the tests and the pages beside them, and what else it holds."""
    folders = ("runner", "schema", "specs", "suites", "profiles", "requirements", "tests")
    expected = tracked(*folders) | {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    return [f"lacks {name}" for name in sorted(expected - {*names})] + [
        f"holds {name}" for name in sorted({*names} - expected)
    ]


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel of a folder with hatchling, as pip would. Return the file."""
    code = f"import sys; from hatchling.build import build_{kind}; build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, target], cwd=source, check=True, stdout=subprocess.DEVNULL, timeout=300)
    (path,) = target.iterdir()
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="nothing builds the package")
    return build("sdist", REPOSITORY, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sdist alone."""
    source = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (root,) = source.iterdir()
    return build("wheel", root, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a new environment with the wheel. What it needs beside this, it imports from this Python's packages."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=300)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--no-index", "--no-deps", wheel], check=True, timeout=300)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n"
    )
    return folder / "bin"


def typed(scripts: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script in a folder outside the checkout."""
    return subprocess.run(
        [scripts / "runner", *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def test_the_sdist_holds_sources_tests_and_pages(sdist: Path) -> None:
    root = f"torch_spec_runner-{runner.__version__}/"
    with tarfile.open(sdist) as archive:
        names = [member.name for member in archive if member.isfile()]
    assert [name for name in names if not name.startswith(root)] == []
    assert sdist_faults(name.removeprefix(root) for name in names) == []


def test_the_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert wheel_faults(archive.namelist()) == []
        assert archive.read(f"{INFO}/entry_points.txt").decode().startswith(SCRIPT)
        metadata = Parser().parsestr(archive.read(f"{INFO}/METADATA").decode())
    assert metadata["Version"] == runner.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.10"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert required and not [line for line in required if line.startswith(("torch", "triton"))]


@pytest.mark.parametrize(
    "lost", ["runner/_schema/spec.schema.json", "runner/templates/run.html.j2", f"{INFO}/licenses/LICENSE"]
)
def test_a_missing_file_of_a_wheel_is_named(lost: str) -> None:
    names = wheel_files() | {
        f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }
    assert wheel_faults(names) == []
    assert wheel_faults(names - {lost}) == [f"lacks {lost}"]
    assert wheel_faults(names | {"tests/conftest.py"}) == ["holds tests/conftest.py"]


def test_the_installed_command_is_of_this_version_and_lies_in_its_environment(scripts: Path, tmp_path: Path) -> None:
    version = typed(scripts, tmp_path, "--version")
    assert (version.returncode, version.stdout) == (0, f"runner {runner.__version__}\n"), version.stderr
    place = subprocess.run(
        [scripts / "python", "-c", "import runner; print(runner.__file__)"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert Path(place.stdout.strip()).is_relative_to(scripts.parent), place.stderr


def test_a_shipped_case_of_the_wheel_is_valid(scripts: Path, tmp_path: Path) -> None:
    (seeds,) = scripts.parent.glob("lib/python*/site-packages/runner/_specs/seeds")
    shutil.copytree(seeds, tmp_path / "seeds")
    result = typed(scripts, tmp_path, "validate", "seeds")
    assert result.returncode == 0 and " 0 errors" in result.stdout, result.stdout + result.stderr
    (tmp_path / "wrong.spec.yaml").write_text(CASE.replace("F.relu", "F.rellu"))
    assert typed(scripts, tmp_path, "validate", "wrong.spec.yaml").returncode == 4


def test_a_case_runs_with_the_installed_command(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "relu.spec.yaml").write_text(CASE)
    result = typed(scripts, tmp_path, "run", "relu.spec.yaml", "--backend", "eager", "--no-confirm")
    assert result.returncode == 0 and "1 passed" in result.stdout, result.stdout + result.stderr
    assert (tmp_path / ".runner" / "latest" / "junit.xml").is_file()


def test_the_container_copies_what_the_wheel_is_built_from(wheel: Path, tmp_path: Path) -> None:
    """The image is built from what the recipe copies. A build of that alone gives the same wheel."""
    source, target = tmp_path / "source", tmp_path / "wheel"
    source.mkdir()
    target.mkdir()
    lines = (REPOSITORY / "Containerfile").read_text(encoding="utf-8").splitlines()
    for line in (line for line in lines if line.startswith("COPY ")):
        *names, place = shlex.split(line)[1:]
        for name in names:
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, source / place, ignore=SKIPPED)
            else:
                shutil.copy(REPOSITORY / name, source / place)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(build("wheel", source, target)) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


def test_hadolint_accepts_the_recipe_of_the_container() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{environment()['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    recipe = (REPOSITORY / "Containerfile").read_text(encoding="utf-8")
    for text, code in ((recipe, 0), (recipe.replace("--no-install-recommends ", ""), 1)):
        result = subprocess.run([hadolint, "--no-color", "-"], input=text, capture_output=True, text=True, timeout=60)
        assert result.returncode == code, result.stdout
