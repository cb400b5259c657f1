"""Pictures that tests of galleries draw, and the names of what they find."""

from pathlib import Path

from PIL import Image

from pipeline.gallery.hits import Hit


def draw(path: Path, number: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    image = Image.new("RGB", size, (40 * number % 256, 90, 200 - 30 * number % 200))
    image.paste((250, 20 * number, 20), (5, 5, 25, 25))
    path.parent.mkdir(exist_ok=True)
    if path.suffix:
        image.save(path)
    return image


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]
