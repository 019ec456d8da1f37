"""Makes the helpers beside the tests importable, and keeps Inductor from starting compile workers."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
