"""What the files of the page share: errors, as one red line where the part that failed would stand."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from data.errors import DataError
from modules.errors import ModelError
from pipeline.app.page_text import plain
from pipeline.engine.machine_errors import line_of
from pipeline.errors import RecipeError


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show an error of what is inside as one line; a decorator of each fragment and dialog, which run by themselves."""
    try:
        yield
    except (DataError, ModelError, RecipeError) as error:
        st.error(plain(str(error)))
    except MemoryError:
        st.error("This machine has too little memory for this.")
    except OSError as error:  # a full disk, a picture that is gone
        st.error(plain(line_of(error) or str(error)))
