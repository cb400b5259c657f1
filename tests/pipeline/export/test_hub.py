"""Models on the hub: pushed, loaded by name, their card; by a stand-in of the hub's client, which needs no network."""

import inspect
import json
import pickle
import shutil
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
import torch
from huggingface_hub import ModelCard, errors

from pipeline.engine.files import digest_of
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.export.hub import check_push, folder_of, push
from tests.pipeline.export.test_exported_model import rewritten
from tests.pipeline.tiny import Tiny


class Hub:
    """Repositories as folders; what `huggingface_hub` would do with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.private = folder, set[str]()

    def create_repo(self, repo_id: str, private: bool | None = None, exist_ok: bool = False) -> str:
        if not (self.folder / repo_id).is_dir():
            (self.folder / repo_id).mkdir(parents=True)
            self.private |= {repo_id} if private else set()
        assert exist_ok
        return f"https://hub/{repo_id}"

    def model_info(self, repo_id: str) -> SimpleNamespace:
        siblings = [SimpleNamespace(rfilename=name) for name in self.names(repo_id)]
        return SimpleNamespace(private=repo_id in self.private, siblings=siblings)

    def upload_folder(
        self, repo_id: str, folder_path: Path, commit_message: str, delete_patterns: list[str],
        allow_patterns: list[str],
    ) -> None:  # fmt: skip
        for name in self.names(repo_id):
            if any(fnmatch(name, pattern) for pattern in delete_patterns):
                (self.folder / repo_id / name).unlink()
        for path in folder_path.rglob("*"):
            name = path.relative_to(folder_path).as_posix()
            if path.is_file() and any(fnmatch(name, pattern) for pattern in allow_patterns):
                (self.folder / repo_id / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.folder / repo_id / name)

    def snapshot_download(
        self, repo_id: str, revision: str | None = None, allow_patterns: tuple[str, ...] = ("*",)
    ) -> str:
        """Files of the repository in a cache, as `model.json` alone, then all."""
        if not (self.folder / repo_id).is_dir():
            raise errors.RepositoryNotFoundError("404", response=answer(404))
        if revision not in (None, "main"):
            raise errors.RevisionNotFoundError("404", response=answer(404))
        cache = self.folder.with_name("cache") / repo_id
        for name in self.names(repo_id):
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / repo_id / name, cache / name)
        return str(cache)

    def names(self, repo_id: str) -> list[str]:
        place = self.folder / repo_id
        return [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]


def answer(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "https://hub"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A stand-in, logged in to."""
    made = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_made_up")
    return made


def test_a_model_is_pushed_and_loaded_by_its_name(hub: Hub, used: Tiny, exported: ExportedModel, tmp_path: Path):
    """`--model` takes the name too; what an older model left there is deleted, what its owner wrote is not."""
    arguments = ["--output", str(tmp_path / "model"), "--push", "me/bats", "--private", "--license", "cc-by-4.0"]
    assert used.main("export", *arguments) == 0
    assert hub.private == {"me/bats"}
    found = ExportedModel.from_pretrained("me/bats", revision="main")
    assert found.fingerprint == exported.fingerprint
    torch.testing.assert_close(found.encode_captions(["a bat"]).single(), exported.encode_captions(["a bat"]).single())
    captions = tmp_path / "captions.txt"
    captions.write_text("a red bat\n")
    assert used.main("embed", "--captions", str(captions), "--model", "me/bats", f"--output={tmp_path / 'x.npy'}") == 0
    for name in ("stale.json", "LICENSE", ".gitattributes", "README.md"):
        (hub.folder / "me/bats" / name).write_text("changed")
    push(exported.folder, "me/bats", private=True)
    assert {"LICENSE", ".gitattributes", "README.md", "model.json"} <= set(hub.names("me/bats"))
    assert "stale.json" not in hub.names("me/bats")
    (hub.folder / "me/bats" / "README.md").write_text("the license is …")
    assert ExportedModel.from_pretrained("me/bats").fingerprint == exported.fingerprint


def test_the_card_is_one_of_the_hub_s(used: Tiny, exported: ExportedModel, tmp_path: Path) -> None:
    """Its metadata are read back by the hub's own classes; its figures are those of the test."""
    card = ModelCard.load(exported.folder / "README.md")
    test = json.loads((exported.folder / "model.json").read_text())["test"]
    assert card.data.license == "unknown"
    assert "Nobody has named one" in card.text
    assert (card.data.language, card.data.datasets) == (["en"], ["scenes"])
    assert (card.data.pipeline_tag, card.data.library_name) == ("feature-extraction", "bildwort")
    found = {(one.dataset_config, one.metric_name): one.metric_value for one in card.data.eval_results}
    assert {language for language, _ in found} == set(test)
    assert found["en", "image-to-text R@5"] == round(test["en"]["i2t_r5"], 1)
    assert found["de", "mean recall"] == round(test["de"]["mean_recall"], 1)
    right = " / ".join(f"{test['en'][f't2i_r{k}']:.1f}" for k in (1, 5, 10))
    assert f"| en | {right} |" in card.text
    assert "| de (not trained on it) |" in card.text
    assert 'from_pretrained("this folder")' in card.text


def test_a_card_names_the_license_and_the_place_that_are_given(used: Tiny, hub: Hub, tmp_path: Path) -> None:
    assert used.main("export", "--output", str(tmp_path / "m"), "--license", "mit", "--push", "me/named") == 0
    card = ModelCard.load(hub.folder / "me/named/README.md")
    assert card.data.license == "mit"
    assert 'from_pretrained("me/named")' in card.text
    assert "`mit`" in card.text


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [("me/gone", None, r"me/gone: no such folder, and no such model on the hub, or a private one; check the name"),
     ("nobody", None, r"nobody: no exported model here; expected a folder, or a name on the hub, USER/NAME"),
     ("a/b/c", None, "expected a folder, or a name on the hub"), ("../x", None, "expected a folder, or a name"),
     ("me/other", None, r"me/other: has no model\.json on the hub, so it is no model that Bildwort exported"),
     ("me/other", "v9", r"me/other: has no revision 'v9' on the hub; name a branch, tag or commit")],
)  # fmt: skip
def test_a_name_that_is_none_is_one_line(hub: Hub, name: str, revision: str | None, said: str) -> None:
    hub.create_repo("me/other", exist_ok=True)
    (hub.folder / "me/other/pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(RecipeError, match=said):
        folder_of(name, revision)
    assert not list(hub.folder.parent.glob("cache/**/*.bin"))  # nothing else has been loaded


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a folder, which has no revision 'main'"):
        folder_of(tmp_path, "main")


def raising(error: Exception):
    def stand_in(*_: object, **__: object) -> None:
        raise error

    return stand_in


OFFLINE = [errors.LocalEntryNotFoundError("Got: ConnectError"), errors.OfflineModeIsEnabled("offline"),
           httpx2.ConnectError("[Errno -2] Name or service not known")]  # fmt: skip


@pytest.mark.parametrize("error", OFFLINE)
def test_no_network_is_one_line_that_says_what_to_do(
    hub: Hub, exported: ExportedModel, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", raising(error))
    advice = r"me/bats: the hub cannot be reached \(.*\); no folder of this name either; copy the model where there is "
    with pytest.raises(RecipeError, match=advice + r"a network \(`hf download me/bats --local-dir FOLDER`\)"):
        ExportedModel.from_pretrained("me/bats")
    monkeypatch.setattr(Hub, "create_repo", raising(error))
    with pytest.raises(RecipeError, match=r"the hub cannot be reached .*; the model is in .*model: push it later"):
        push(exported.folder, "me/bats")


def test_a_push_that_cannot_succeed_is_refused_before_the_export(
    hub: Hub, used: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    place = ["--output", str(tmp_path / "model")]
    assert used.main("export", *place, "--push", "bats") == 1
    assert "--push 'bats': expected USER/NAME" in " ".join(capsys.readouterr().err.split())
    assert used.main("export", *place, "--private") == 1
    assert "--private needs --push USER/NAME" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert used.main("export", *place, "--push", "me/bats") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "--push me/bats: not logged in to the hub; run `.venv/bin/hf auth login`, or set HF_TOKEN" in said
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_of_the_hub_is_one_line(
    hub: Hub, exported: ExportedModel, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "create_repo", raising(errors.HfHubHTTPError("no\nway", response=answer(status))))
    said = "refuses access; log in" if status < 500 else r"the hub refuses \(no way\)"
    with pytest.raises(RecipeError, match=said):
        push(exported.folder, "you/bats")


def test_a_push_replaces_nothing_of_others_and_publishes_nothing_private(hub: Hub, exported: ExportedModel) -> None:
    hub.create_repo("me/thesis", exist_ok=True)
    with pytest.raises(RecipeError, match="me/thesis: is public; make it private on the hub"):
        push(exported.folder, "me/thesis", private=True)
    (hub.folder / "me/thesis/pytorch_model.bin").write_text("of value")
    with pytest.raises(RecipeError, match=r"holds pytorch_model\.bin, which is no part of an exported model"):
        push(exported.folder, "me/thesis")
    assert hub.names("me/thesis") == ["pytorch_model.bin"]


def test_a_push_uploads_what_was_exported_and_nothing_else(hub: Hub, exported: ExportedModel, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported.folder, tmp_path / "model"))
    (folder / ".env").write_text("TOKEN=hf_made_up")
    push(folder, "me/bats")
    listed = json.loads((folder / "model.json").read_text())["files"]
    assert set(hub.names("me/bats")) == {"model.json", *listed}
    (folder / "notes.txt").write_text("not for others")
    with pytest.raises(RecipeError, match=r"notes\.txt: was not exported; move it out of the model folder"):
        push(folder, "me/bats")
    assert "notes.txt" not in hub.names("me/bats")


def test_the_stand_in_is_asked_what_the_hub_s_client_can_be_asked() -> None:
    for name in ("create_repo", "model_info", "upload_folder"):
        of_client = inspect.signature(getattr(huggingface_hub.HfApi, name)).parameters
        assert inspect.signature(getattr(Hub, name)).parameters.keys() <= of_client.keys()
    of_client = inspect.signature(huggingface_hub.snapshot_download).parameters
    assert inspect.signature(Hub.snapshot_download).parameters.keys() - {"self"} <= of_client.keys()


@pytest.mark.parametrize("name", ["a", "a/", "/b", "a/b/c", "a b/c", "", "../a", "a/é"])
def test_names_that_are_none_are_not_pushed(hub: Hub, name: str) -> None:
    with pytest.raises(RecipeError, match="expected USER/NAME, the model's name on the hub"):
        check_push(name)


class Evil:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (self.path.touch, ())


def test_pickled_weights_and_code_are_refused_whether_they_are_listed_or_not(
    hub: Hub, exported: ExportedModel, tmp_path: Path
) -> None:
    push(exported.folder, "me/bats")
    place = hub.folder / "me/bats"
    about = json.loads((place / "model.json").read_text())
    for name, said in (("weights.bin", "can be a pickle, which runs code when it is read"),
                       ("text/modeling_evil.py", "code in a model folder is not run")):  # fmt: skip
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(pickle.dumps(Evil(tmp_path / "evil")))
        with pytest.raises(RecipeError, match=said):
            ExportedModel.from_pretrained("me/bats")
        listed = about["files"] | {name: digest_of(place / name)}
        (place / "model.json").write_text(json.dumps(about | {"files": listed}))
        with pytest.raises(RecipeError, match=said):
            ExportedModel.from_pretrained("me/bats")
        (place / name).unlink()
        (place / "model.json").write_text(json.dumps(about))
        shutil.rmtree(hub.folder.with_name("cache"))
    assert not (tmp_path / "evil").exists()


def test_code_that_a_text_model_names_elsewhere_is_not_run(exported: ExportedModel, tmp_path: Path) -> None:
    """As `trust_remote_code` would load it."""
    model = Path(shutil.copytree(exported.folder, tmp_path / "model"))
    network = json.loads((model / "network.json").read_text())
    network["arguments"]["pretrained"] = "text"
    elsewhere = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "someone/evil--modeling.Evil")
    config = {"model_type": "evil", "auto_map": elsewhere}
    texts = {"network.json": network, "words.json": {"pretrained": "text"}, "text/config.json": config}
    with pytest.raises(RecipeError, match="no tokenizer of transformers there"):
        ExportedModel.load(rewritten(model, {name: json.dumps(text) for name, text in texts.items()}))
