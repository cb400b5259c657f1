"""Settings that must be in place before torch is imported, and what is remembered of this machine."""

import json
import os
import platform
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("MAKELEVEL", None)  # of `make test`; what is called by make names targets of it as the next step
os.environ.setdefault("BILDWORT_JOBS", "1")  # tiny jobs are over before another process has started
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so that processes of tests do not ignore it
_cache = tempfile.TemporaryDirectory(prefix="bildwort-tests-")
os.environ["BILDWORT_CACHE"] = _cache.name
(Path(_cache.name) / "precision.json").write_text(json.dumps({platform.node(): "32-true"}))  # whatever it is fast at

if sys.platform != "linux":  # these fork, limit what is written, or look into /proc
    collect_ignore_glob = [
        "pipeline/*_killed.py", "pipeline/engine/test_files.py", "pipeline/test_full_disk.py",
        "pipeline/test_image_encoder.py", "pipeline/gallery/test_indexing.py", "pipeline/commands/test_outputs.py",
        "pipeline/test_sigterm.py", "pipeline/test_two_processes.py",
        "modules/training/test_distributed.py", "modules/test_plugins.py", "modules/training/test_uneven.py",
        "fuzz/*",
        "benchmarks/test_gxn_speed.py", "benchmarks/test_ranking_memory.py", "benchmarks/test_synthesis_speed.py",
    ]  # fmt: skip
