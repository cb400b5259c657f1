"""What a training writes to TensorBoard beside its curves: charts, throughput, settings with results."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata

from modules.training import callbacks
from modules.training.callbacks import Pace
from pipeline.training.tensorboard import log_result
from tests.pipeline.tiny import Tiny


def events_of(made: Tiny, job: str) -> EventAccumulator:
    (folder,) = (made.folder / "lightning_logs" / "tiny" / job).iterdir()
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


@pytest.fixture(scope="module")
def vse(tiny: Tiny) -> EventAccumulator:
    return events_of(tiny, "vse-san-human-1")


@pytest.fixture(scope="module")
def mmt(tiny: Tiny) -> EventAccumulator:
    return events_of(tiny, "mmt-en-de")


def charts_of(events: EventAccumulator) -> dict[str, list[str]]:
    layout = layout_pb2.Layout.FromString(events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    return {chart.title: list(chart.multiline.tag) for category in layout.category for chart in category.chart}


def test_all_runs_of_a_recipe_have_the_same_charts_and_each_finds_its_curves(vse, mmt) -> None:
    charts = charts_of(vse)
    assert charts == charts_of(mmt)  # else TensorBoard would show some of them twice
    for title, of_vse, of_mmt in (
        ("mean recall, en", True, False), ("mean recall, de", False, False), ("BLEU", False, True),
        ("training", True, False),  # eight steps are too few for a logged one
        ("validation (translators)", False, True), ("captions a second", True, False),
        ("words a second", False, True), ("sum of R@K, by which the epoch is chosen", True, False),
    ):  # fmt: skip
        (tag,) = charts.pop(title)
        assert tag.endswith("$")
        assert (tag[:-1] in vse.Tags()["scalars"]) == of_vse, title
        assert (tag[:-1] in mmt.Tags()["scalars"]) == of_mmt, title
    assert charts == {}


def test_throughput_and_memory_are_logged(vse, mmt) -> None:
    assert all(event.value > 0 for event in vse.Scalars("pace/steps a second"))
    assert all(100 < event.value < 100_000 for event in vse.Scalars("pace/peak MB"))
    for events, tag, epochs in ((vse, "pace/captions a second", 4), (mmt, "pace/words a second", 4)):
        found = events.Scalars(tag)
        assert len(found) == epochs
        assert all(event.value > 1 for event in found)


def test_the_pace_of_an_epoch_is_what_it_read_by_its_time_without_validation(monkeypatch) -> None:
    now, logged, pace = [0.0], [], Pace(lambda: 100.0)
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    logger = SimpleNamespace(log_metrics=lambda found, step: logged.append(found))
    two = SimpleNamespace(reduce=lambda count, reduce_op: 2 * count)  # devices
    fit_loop = SimpleNamespace(total_batch_idx=-1)
    trainer = SimpleNamespace(fit_loop=fit_loop, logger=logger, loggers=[logger], strategy=two)
    module = SimpleNamespace(device="cpu")
    batch = {"type": [0] * 15}
    pace.on_train_start(trainer, module)
    for seconds in (2.0, 3.0):
        pace.on_train_epoch_start(trainer, module)
        for _ in range(4):
            now[0] += seconds
            pace.on_train_batch_end(trainer, module, None, batch, 0)
        pace.on_validation_start(trainer, module)
        now[0] += 100
        pace.on_validation_end(trainer, module)
        pace.on_train_epoch_end(trainer, module)
    assert logged == [{"pace/captions a second": 15.0}, {"pace/captions a second": 10.0}]


def hparams(events: EventAccumulator, tag: str) -> metadata.plugin_data_pb2.HParamsPluginData:
    content = events.SummaryMetadata(tag).plugin_data.content
    return metadata.plugin_data_pb2.HParamsPluginData.FromString(content)


def test_settings_stand_beside_the_final_figures_of_the_manifest(tiny: Tiny, vse, mmt) -> None:
    found = {}
    for events in (vse, mmt):
        assert "hp_metric" not in events.Tags()["scalars"]  # Lightning's, of −1
        start = hparams(events, metadata.SESSION_START_INFO_TAG).session_start_info
        settings = {name: value.string_value or value.number_value for name, value in start.hparams.items()}
        results = {
            tag: [one.value for one in events.Scalars(tag)] for tag in events.Tags()["scalars"] if "result/" in tag
        }
        found[settings["model"]] = (settings, results)
        columns = [one.name.tag for one in hparams(events, metadata.EXPERIMENT_TAG).experiment.metric_infos]
        assert results.keys() < set(columns)
        assert settings.keys() <= {one.name for one in hparams(events, metadata.EXPERIMENT_TAG).experiment.hparam_infos}
        assert columns == [
            "result/BLEU", "result/ambiguous words %", "result/val rsum", "result/mean recall, en",
            "result/mean recall, de",
        ]  # fmt: skip
    settings, results = found["san"]
    assert settings | {"trained on": "human", "seed": 1, "epochs": 4, "batch_size": 4, "dim": 16} == settings
    figures = tiny.metrics("vse-san-human-1")
    for language in ("en", "de"):
        assert results[f"result/mean recall, {language}"] == [pytest.approx(figures["test"][language]["mean_recall"])]
    assert results["result/val rsum"] == [pytest.approx(figures["val"]["en"]["rsum"])]
    settings, results = found["mmt"]
    assert settings | {"trained on": "en-de", "seed": 3, "steps": 8} == settings
    assert results["result/BLEU"] == [pytest.approx(tiny.metrics("mmt-en-de")["test_bleu"])]


def test_what_is_not_set_is_left_out(tmp_path: Path) -> None:
    log_result(tmp_path, [], {"model": "san", "loss": None}, {"BLEU": 1.0})
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(hparams(events, metadata.SESSION_START_INFO_TAG).session_start_info.hparams) == {"model"}
