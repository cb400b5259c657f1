"""What the tests of the pipeline share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pipeline.reporting.records as store
from data.pictures import extractor
from pipeline.engine.workspace import Workspace
from pipeline.export.exported_model import ExportedModel
from tests.pipeline.drawn import draw
from tests.pipeline.kills import Kills, kills
from tests.pipeline.tiny import GXN, RERANKED, Tiny


@pytest.fixture(scope="session", autouse=True)
def _few_pictures_are_read_here() -> Iterator[None]:
    """To start processes takes longer than to read the pictures of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extractor, "_CHUNK", 64)
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Artifacts of a test of its own, whose records lie beside them."""
    monkeypatch.setattr(store, "RECORDS", tmp_path / "results")
    for function in (store.add_records, store.read_records):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "results",))
    return Workspace(tmp_path / "artifacts")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Tiny:
    """All stages once; several tests read what they left."""
    made = Tiny(tmp_path_factory.mktemp("tiny"))
    for stage in ("prepare", "mmt", "augment", "vse"):
        assert made.main(stage) == 0
    return made


@pytest.fixture(scope="session")
def gxn(tiny: Tiny, tmp_path_factory) -> Tiny:
    """A model that writes captions and draws pictures."""
    made = tiny.without(tmp_path_factory.mktemp("gxn"), "vse-*")
    assert made.main("vse", *GXN) == 0
    return made


@pytest.fixture(scope="session")
def gxn_model(gxn: Tiny) -> Path:
    """It, exported."""
    assert gxn.main("export", *GXN, f"--output={gxn.folder / 'model'}") == 0
    return gxn.folder / "model"


@pytest.fixture(scope="session")
def reranked(tiny: Tiny, tmp_path_factory) -> Tiny:
    """A copy of the tiny recipe's artifacts in which systems are re-ranked."""
    made = tiny.without(tmp_path_factory.mktemp("reranked") / "tiny", "nothing")
    assert made.main("all", *RERANKED) == 0
    return made


@pytest.fixture(scope="session")
def server() -> Iterator[Kills]:
    """The process that runs which are killed are forked from; to start it takes seconds."""
    with kills() as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Tiny:
    """The recipe, and nothing done yet."""
    return Tiny(tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Empty."""
    return Workspace(tmp_path / "artifacts")


@pytest.fixture(scope="session")
def used(tiny: Tiny) -> Tiny:
    """The tiny recipe's best model is exported and its pictures are indexed."""
    assert tiny.main("index") == 0
    return tiny


@pytest.fixture(scope="session")
def exported(used: Tiny) -> ExportedModel:
    return ExportedModel.load(used.workspace.root / "tiny" / "model")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of somebody's pictures."""
    folder = tmp_path / "own"
    for number in range(6):
        draw(folder / f"{number}.png", number)
    return folder
