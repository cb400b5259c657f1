"""The loss of a student of text: its vectors of sentences against a teacher's, without pictures."""

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.layers.recurrent import widen


def teaching_loss(students: Tensor, teachers: Tensor, taught: Tensor) -> Tensor:
    """Return the mean of 1 − cos(student, teacher) over taught sentences (Reimers and Gurevych 2020, in the cosine).

    Interpretation: theirs is the squared error of vectors of any length. Here both are unit vectors, of which the
    squared error is 2 − 2 cos: twice this loss.

    Args:
        students: (C, H) vectors of sentences.
        teachers: (C, H) the teacher's vectors of the sentences that they are translated from.
        taught: (C,) bool, which of them are meant.

    Returns:
        The loss, a scalar with a gradient in every case; 0 where none is meant.

    Examples:
        >>> students, teachers = torch.tensor([[1.0, 0.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0]] * 3)
        >>> round(float(teaching_loss(students, teachers, torch.tensor([True, True, False]))), 2)  # the mean of 0 and 1
        0.5
    """
    distances = 1 - F.cosine_similarity(widen(students), widen(teachers), dim=-1)
    return torch.where(taught, distances, 0).sum() / taught.sum().clamp(min=1)
