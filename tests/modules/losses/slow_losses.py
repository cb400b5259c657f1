"""The losses pair by pair, with plain numbers, as their papers print them."""

import torch
from torch import Tensor


def hinge(value: Tensor) -> Tensor:
    return value.clamp(min=0)


def slow_hard_negative_loss(similarity, positives, negatives, types, margin=0.2, weights=None, hardest=True):
    """Eq. 9-10, pair by pair, with plain numbers."""
    rows, columns = range(similarity.shape[0]), range(similarity.shape[1])
    kinds = sorted(set(types.tolist()))
    beta = dict.fromkeys(kinds, 1.0) if weights is None else {kind: float(weights[kind]) for kind in kinds}
    loss = similarity.sum() * 0
    for v in rows:
        for t in columns:
            if not positives[v, t]:
                continue
            score = similarity[v, t]
            wrong = {kind: [c for c in columns if negatives[v, c] and types[c] == kind] for kind in kinds}
            wrong = {kind: found for kind, found in wrong.items() if found and beta[kind] > 0}
            total = sum(beta[kind] for kind in wrong)
            if wrong and hardest:
                hard = sum(beta[kind] / total * max(similarity[v, c] for c in wrong[kind]) for kind in wrong)
                loss = loss + hinge(margin - score + hard)
            for kind in wrong if not hardest else ():
                hinges = [hinge(margin - score + similarity[v, c]) for c in wrong[kind]]
                loss = loss + beta[kind] / total * sum(hinges) / len(hinges)
            images = [similarity[i, t] for i in rows if negatives[i, t]]
            if images and hardest:
                loss = loss + hinge(margin - score + max(images))
            elif images:
                loss = loss + sum(hinge(margin - score + image) for image in images) / len(images)
    return loss


def slow_sum_of_hinges(similarity, positives, negatives, margin=0.2):
    loss = similarity.sum() * 0
    for v, t in positives.nonzero().tolist():
        for c in range(similarity.shape[1]):
            if negatives[v, c]:
                loss = loss + hinge(margin - similarity[v, t] + similarity[v, c])
        for i in range(similarity.shape[0]):
            if negatives[i, t]:
                loss = loss + hinge(margin - similarity[v, t] + similarity[i, t])
    return loss


def slow_contrastive_loss(similarity, positives, negatives, scale):
    """InfoNCE, pair by pair: −log of the right one's share among itself and the wrong ones, both ways."""
    terms = [similarity.sum() * 0]
    for v, t in positives.nonzero().tolist():
        right = (scale * similarity[v, t]).exp()
        captions = sum((scale * similarity[v, c]).exp() for c in range(similarity.shape[1]) if negatives[v, c])
        images = sum((scale * similarity[i, t]).exp() for i in range(similarity.shape[0]) if negatives[i, t])
        terms += [-(right / (right + captions)).log(), -(right / (right + images)).log()]
    return sum(terms) / max(len(terms) - 1, 1)


def slow_sigmoid_loss(similarity, positives, negatives, scale, bias):
    """SigLIP: a yes for each positive pair, a no for each negative one."""
    loss = similarity.sum() * 0
    for v in range(similarity.shape[0]):
        for t in range(similarity.shape[1]):
            logit = scale * similarity[v, t] + bias
            if positives[v, t]:
                loss = loss - (1 / (1 + (-logit).exp())).log()
            if negatives[v, t]:
                loss = loss - (1 / (1 + logit.exp())).log()
    return loss / similarity.shape[1]


def slow_negative_mask(image_keys, caption_image, sentence_hash, image_sentences):
    positives = torch.zeros(len(image_keys), len(caption_image), dtype=torch.bool)
    negatives = ~positives
    for i, key in enumerate(image_keys.tolist()):
        own = [c for c, image in enumerate(caption_image.tolist()) if int(image_keys[image]) == key]
        said = {int(sentence_hash[c]) for c in own} | {s for owner, s in image_sentences.tolist() if owner == key}
        for c in range(len(caption_image)):
            positives[i, c] = c in own
            negatives[i, c] = int(sentence_hash[c]) not in said
    return positives, negatives


def slow_most_violated(similarity, positives, negatives, margin=0.05, count=10):
    """MULE's triplets: of each anchor the K that violate the margin most, averaged; the mean over positive pairs."""
    pairs, loss = positives.nonzero().tolist(), similarity.sum() * 0
    for v, t in pairs:
        captions = [similarity[v, c] for c in range(similarity.shape[1]) if negatives[v, c]]
        images = [similarity[i, t] for i in range(similarity.shape[0]) if negatives[i, t]]
        for wrong in (captions, images):
            worst = sorted((hinge(margin - similarity[v, t] + one) for one in wrong), key=float, reverse=True)[:count]
            if worst:
                loss = loss + sum(worst) / len(worst) / len(pairs)
    return loss


def slow_one_to_k(similarity, positives, negatives, scale):
    """A softmax of each image against its K captions and its negatives, and of each caption against images."""
    rows, columns = range(similarity.shape[0]), range(similarity.shape[1])
    sides = []
    for cells in ([[(v, t) for t in columns] for v in rows], [[(v, t) for v in rows] for t in columns]):
        terms = []
        for line in cells:
            total = sum((scale * similarity[cell]).exp() for cell in line if positives[cell] or negatives[cell])
            right = [cell for cell in line if positives[cell]]
            if right:
                terms.append(-sum(((scale * similarity[cell]).exp() / total).log() for cell in right) / len(right))
        sides.append(sum(terms) / len(terms) if terms else similarity.sum() * 0)
    return sum(sides) / 2
