"""TensorBoard opens on the layout of all trainings."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from pipeline.errors import RecipeError
from pipeline.visualization.board import show_board
from tests.pipeline.tiny import ROOT, Tiny


@pytest.mark.whole
def test_the_first_tab_with_data_is_the_layout(tiny: Tiny) -> None:
    command = [sys.executable, "-m", "pipeline", "tensorboard", str(tiny.folder / "lightning_logs"), "--port=0"]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tiny.folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        found = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in server.stderr)
        address = next(one[0] for one in found if one)
        deadline, enabled = time.monotonic() + 60, []
        while "custom_scalars" not in enabled and time.monotonic() < deadline:  # until it has read the files
            plugins = json.load(urlopen(f"{address}data/plugins_listing", timeout=30))
            enabled = [name for name, plugin in plugins.items() if plugin["enabled"]]
            time.sleep(0.2)
        assert enabled[0] == "custom_scalars"
        assert {"scalars", "timeseries", "hparams"} < set(enabled)
    finally:
        server.kill()
        server.communicate()


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="logs: no such folder; expected one with files of trainings"):
        show_board(tmp_path / "logs", "127.0.0.1", 0)
