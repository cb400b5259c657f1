"""An export or an `init`, killed while it deletes what it has replaced, does not stand in the way of the next."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from data.own_captions.data_sets import write_data_set
from data.pictures.folder import is_written
from tests.pipeline.init.own_pictures import draw_pictures
from tests.pipeline.kills import ROOT, Kills, Moment
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

DIES = """
import os, sys
from pathlib import Path
from data.own_captions.data_sets import write_data_set
from pipeline.engine.files import delete_folder
removed = []
def hook(name, arguments):
    if name == "os.remove":
        removed.append(name)
        if len(removed) > int(sys.argv[1]):
            os.kill(os.getpid(), 9)
sys.addaudithook(hook)
"""


def dies(call: str, after: int) -> None:
    """Evaluate a call in a process that is killed when it has removed so many files."""
    ended = subprocess.run([sys.executable, "-c", DIES + call, str(after)], cwd=ROOT)
    assert ended.returncode == -signal.SIGKILL


def test_an_export_killed_while_it_deletes_the_old_model_is_mended(used: Tiny, server: Kills, tmp_path: Path) -> None:
    made = used.without(tmp_path / "made", "no-job")
    shutil.copytree(used.workspace.root / "tiny" / "model", made.workspace.root / "tiny" / "model")
    count = sum(path.is_file() for path in (made.workspace.root / "tiny" / "model").rglob("*"))
    (ended,) = server.run(made.folder, "export", moment=Moment("remove tiny/model.before/*", count))
    assert ended.status == -signal.SIGKILL
    (ended,) = server.run(made.folder, "export")
    assert ended.status == 0, ended.said
    assert not [*(made.workspace.root / "tiny").glob("model.*")]


@pytest.mark.parametrize("after", [1, 3])
def test_half_of_a_deleted_folder_is_known_by_its_mark(tmp_path: Path, after: int) -> None:
    folder = tmp_path / "model"
    (folder / "part").mkdir(parents=True)
    for name in ("mark", "a", "part/b", "z"):
        (folder / name).touch()
    dies(f"delete_folder(Path({str(folder)!r}), 'mark')", after)
    assert (folder / "mark").exists()


def test_an_init_killed_while_it_deletes_the_old_data_set_leaves_the_new_one(tmp_path: Path) -> None:
    names = draw_pictures(tmp_path / "pets", 3)
    rows = [{"file_name": name, "text": text} for name, text in names.items()]
    (tmp_path / "pets" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = tmp_path / "pets-data"
    write_data_set(str(tmp_path / "pets"), data)
    for after in range(5):
        dies(f"write_data_set({str(tmp_path / 'pets')!r}, Path({str(data)!r}))", after)
        assert is_written(data)
