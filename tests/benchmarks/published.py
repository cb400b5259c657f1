"""SAN and SCAN as the code of VSE++ and SCAN writes them: float32, packed captions, a loop over captions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.benchmarks.timing import REGION_DIM, VOCABULARY


def published_t2i(images: Tensor, captions: tuple[Tensor, Tensor], lambda_softmax: float = 9.0) -> Tensor:
    """The published form of SCAN t2i-AVG: a loop over captions, each beside all images, with context vectors."""
    columns = []
    for words, real in zip(*captions, strict=True):
        query = words[real].repeat(len(images), 1, 1)
        attention = F.leaky_relu(images @ query.transpose(1, 2), 0.1)
        attention = attention / (attention.square().sum(2, keepdim=True).sqrt() + 1e-8)
        attention = (attention.transpose(1, 2) * lambda_softmax).softmax(-1)
        columns.append(F.cosine_similarity(query, attention @ images, dim=-1).mean(1))
    return torch.stack(columns, 1)


def max_violation(scores: Tensor, margin: float = 0.2) -> Tensor:
    """The loss of VSE++ and SCAN: hinges on the hardest negatives, told by the diagonal."""
    diagonal = scores.diag()[:, None]
    own = torch.eye(len(scores)).bool()
    by_caption, by_image = (
        (margin + scores - side).clamp(min=0).masked_fill(own, 0) for side in (diagonal, diagonal.t())
    )
    return by_caption.max(1)[0].sum() + by_image.max(0)[0].sum()


class PublishedSCAN(nn.Module):
    """Scores of SCAN t2i-AVG: `nn.GRU` on packed captions, whose directions are averaged."""

    same = {"regions": "regions", "captions.words": "words", "captions.gru": "recurrent"}
    """What each part is called in our model, and here."""
    recurrent_kind: type[nn.RNNBase] = nn.GRU

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.regions, self.words = nn.Linear(REGION_DIM, dim), nn.Embedding(VOCABULARY, 300)
        self.recurrent = self.recurrent_kind(300, dim, batch_first=True, bidirectional=True)

    def states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        ahead, back = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)[0].chunk(2, -1)
        return (ahead + back) / 2

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        states = self.states(tokens, lengths)
        real = torch.arange(states.shape[1]) < lengths[:, None]
        return published_t2i(F.normalize(self.regions(regions), dim=-1), (F.normalize(states, dim=-1), real))

    def take_weights(self, ours: nn.Module) -> None:
        """Copy all weights of our model; each must have its place."""
        weights = {
            there + name.removeprefix(here): tensor
            for here, there in self.same.items() for name, tensor in ours.state_dict().items() if name.startswith(here)
        }  # fmt: skip
        assert len(weights) == len(ours.state_dict())
        self.load_state_dict(weights)


class PublishedSAN(PublishedSCAN):
    """Scores of SAN: `nn.LSTM` on packed captions; regions and words pooled by attention from one context each."""

    same = {
        "regions": "regions", "captions.words": "words", "captions.lstm.lstm": "recurrent",
        "pool_regions.context": "contexts.0", "pool_words.context": "contexts.1",
        "pool_regions.of_context": "pools.0", "pool_regions.of_vectors": "pools.1",
        "pool_words.of_context": "pools.2", "pool_words.of_vectors": "pools.3",
    }  # fmt: skip
    recurrent_kind = nn.LSTM

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.pools = nn.ModuleList([nn.Linear(dim, dim) for _ in range(4)])
        self.contexts = nn.ParameterList([torch.randn(dim) for _ in range(2)])

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        vectors = []
        states = self.states(tokens, lengths)
        real = torch.arange(states.shape[1]) < lengths[:, None]
        sides = ((self.regions(regions), torch.ones(regions.shape[:2]).bool()), (states, real))
        for number, (one, mask) in enumerate(sides):
            context = torch.tanh(self.pools[2 * number](self.contexts[number]))
            shares = torch.tanh(self.pools[2 * number + 1](one)) @ context
            shares = shares.masked_fill(~mask, -torch.inf).softmax(1)
            vectors.append(F.normalize((shares[..., None] * one).sum(1), dim=-1))
        return vectors[0] @ vectors[1].t()
