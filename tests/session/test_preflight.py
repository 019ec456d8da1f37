"""What importing a backend changes is said before the first variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.local import LocalEngine
from runner.session.plan import checked_environments
from runner.session.preflight import import_words
from runner.session.settings import RunSettings


@pytest.mark.parametrize(
    ("act", "settings"),
    [
        ("torch.set_default_dtype(torch.float64)", ["torch.get_default_dtype() from torch.float32 to torch.float64"]),
        ("torch.use_deterministic_algorithms(True)", ["torch.get_deterministic_debug_mode() from 0 to 2"]),
        ("torch.manual_seed(0)", []),
        ("import warnings, os; warnings.simplefilter('ignore'); os.environ['A'] = 'b'", []),
    ],
)
def test_settings_of_torch_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, settings: list[str]
) -> None:
    (tmp_path / "vendor_of_settings.py").write_text(f"import torch\n{act}\ndef backend(graph, inputs): return graph\n")
    monkeypatch.chdir(tmp_path)
    run = RunSettings(backend=("vendor_of_settings:backend",), allow_python=True)
    (environment, *_) = checked_environments(run, None)
    with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
        notices = import_words(engine, [environment], run)
    assert [notice.message.partition(" changes ")[2].partition(";")[0] for notice in notices] == settings
