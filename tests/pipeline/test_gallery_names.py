"""How a picture of a gallery may be named."""

import pyarrow as pa

from pipeline.gallery.gallery import Gallery


def gallery(*names: str) -> Gallery:
    """One that has these pictures, and nothing else."""
    made = Gallery.__new__(Gallery)
    made._rows = pa.table({"name": list(names)})
    return made


def test_an_ending_is_no_folder() -> None:
    assert gallery("holiday.old/1.jpg", "b.png").place_of("holiday") is None
    assert gallery("b.png", "holiday.jpg", "holiday.old/1.jpg").place_of("holiday") == 1


def test_a_name_of_several_pictures_is_that_of_none() -> None:
    several = gallery("a/1.jpg", "b/1.jpg", "2.jpg", "2.png")
    assert several.place_of("1.jpg") is None
    assert several.shared_name("1.jpg") == ["a/1.jpg", "b/1.jpg"]
    assert several.shared_name("2") == ["2.jpg", "2.png"]
    assert several.shared_name("2.jpg") == several.shared_name("3.jpg") == []
