"""The Dockerfile copies what is there and installs extras that there are; the image itself is not built."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / ".docker" / "Dockerfile").read_text(encoding="utf-8")


def test_what_is_copied_is_there_and_sent() -> None:
    ignored = (ROOT / ".docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [name for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.M) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)


def test_its_extras_are_those_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (device, *others) = re.findall(r"\.\[(.*?)\]", DOCKERFILE)[0].split(",")
    assert device == "${DEVICE}"
    assert {"cpu", "gpu", *others} <= set(extras)
