"""Self-critical training of a caption decoder (Rennie et al. 2017; GXN, Gu et al. 2018, Eq. 5-7)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def advantages(rewards: Tensor, greedy: Tensor | None = None) -> Tensor:
    """Return r(c̃) − r_b of sampled captions.

    Args:
        rewards: (B, S) rewards of S captions sampled for each of B vectors.
        greedy: (B,) rewards of the greedy captions, which are the baseline; None: the baseline is the mean reward of
            the other samples of the same vector, and S is at least 2.

    Returns:
        (B, S).

    Examples:
        >>> advantages(torch.tensor([[1.0, 3.0]])).tolist()  # each is compared with the other
        [[-2.0, 2.0]]
        >>> advantages(torch.tensor([[1.0, 3.0]]), greedy=torch.tensor([2.5])).tolist()
        [[-1.5, 0.5]]
    """
    if greedy is not None:
        return rewards - greedy[:, None]
    count = rewards.shape[1]
    return (rewards - rewards.mean(1, keepdim=True)) * count / (count - 1)


def policy_losses(surprise: Tensor, advantage: Tensor) -> Tensor:
    """Return −(r − r_b) log p of sampled captions, whose gradient is an estimate of that of Eq. 5 (Eq. 6).

    Args:
        surprise: (N,) −log p of the captions, with gradient.
        advantage: (N,) r − r_b.
    """
    return advantage.to(surprise) * surprise


def share_of_rewards(gamma: Sequence[float], epoch: int, epochs: int) -> float:
    """Return γ of Eq. 7: from `gamma[0]` in epoch 0, in equal steps, to `gamma[1]` in the last of `epochs`.

    Examples:
        >>> [round(share_of_rewards((0.0, 0.8), epoch, epochs=5), 1) for epoch in range(5)]
        [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    return gamma[0] + (gamma[1] - gamma[0]) * (epoch / max(1, epochs - 1))


def mixed_losses(cross_entropy: Tensor, policy: Tensor, gamma: float) -> Tensor:
    """Return (1 − γ) · cross-entropy + γ · policy loss (Eq. 7), of the same shape.

    Examples:
        >>> surprise = torch.tensor([2.0, 2.0])
        >>> policy = policy_losses(surprise, torch.tensor([1.5, -0.5]))  # 3 and −1: a good sample and a poor one
        >>> mixed_losses(surprise, policy, gamma=0.25).tolist()
        [2.25, 1.25]
    """
    return torch.lerp(cross_entropy, policy, gamma)
