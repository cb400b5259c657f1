"""A job whose files are damaged is not exported: a line names the job, which is run again."""

import re
from pathlib import Path

import pytest

from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    ("job", "file"),
    [("vse-san-human-1", "weights.safetensors"), ("vse-san-human-1", "words.json"), ("mt-en-de", "weights.safetensors"),
     ("mt-en-de", "bpe.json"), ("corpus", "regions/regions.npy"), ("corpus", "captions.parquet")],
)  # fmt: skip
def test_a_damaged_file_of_a_job_is_not_exported(used: Tiny, job: str, file: str, cut: bool, tmp_path: Path, capsys):
    made = used.without(tmp_path / "made", "vse-san-mmt-fb-1")
    path = made.job(job) / file
    content = path.read_bytes()
    path.unlink()
    if cut:
        path.write_bytes(content[: len(content) // 2])
    assert made.main("export") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(f"{re.escape(str(path))}: .*delete {re.escape(str(made.job(job)))} and run", said)
    assert not (made.workspace.root / "tiny" / "model").exists()
