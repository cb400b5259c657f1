"""How many parameters a trained model has: those of its weights, and no other."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.pipeline.tiny import Tiny


@pytest.mark.parametrize("loss", ["infonce", "sigmoid"])  # whose scale and bias are not the model's
def test_the_parameters_are_those_of_the_weights(tmp_path: Path, loss: str) -> None:
    tiny = Tiny(tmp_path)
    assert tiny.main("prepare") == 0
    assert tiny.main("vse", "--vse.only=[human]", f"--vse.loss={loss}", "--vse.epochs=1", "--vse.decay_epoch=1") == 0
    weights = load_file(tiny.job("vse-san-human-1") / "weights.safetensors")
    figures = tiny.metrics("vse-san-human-1")
    assert figures["parameters"] == figures["trained_parameters"] == sum(array.size for array in weights.values())
