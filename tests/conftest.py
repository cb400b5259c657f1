"""Settings that must be in place before torch is imported, and what is remembered of this machine."""

import json
import os
import platform
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["BILDWORT_CACHE"] = tempfile.mkdtemp(prefix="bildwort-tests-")  # every machine is tested in float32
(Path(os.environ["BILDWORT_CACHE"]) / "precision.json").write_text(json.dumps({platform.node(): "32-true"}))
