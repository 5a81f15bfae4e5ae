"""Cross-entropy over a vocabulary, with each token's loss and its logits' gradient: the end of a training step.

The loss of a token is log(sum(exp(logits))) less the logit of what came next, its gradient the softmax less one where
that stands (Bishop 2006, section 4.3.4). Tokens that do not count (padding, prompts) have a target of -100.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"tokens": 96, "vocabulary": 4096},
    "gpu": {"tokens": 4096, "vocabulary": 32768},
    "shapes/narrow": {"tokens": 512, "vocabulary": 500},
    "shapes/wide": {"tokens": 16, "vocabulary": 20480},
    "shapes/odd": {"tokens": 61, "vocabulary": 3001},
}
HIDDEN_WORKLOADS = {"held-out": {"tokens": 45, "vocabulary": 5003}}

IGNORED = -100


class Model(nn.Module):
    """loss = log(sum(exp(x))) - x[target], gradient = softmax(x) - one_hot(target); 0 for tokens that do not count."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """logits: (tokens, vocabulary) fp32; target: (tokens,) int64, -100 where a token does not count.

        Returns the loss of each token, (tokens,) fp32, and its gradient with respect to the logits, (tokens,
        vocabulary) fp32.
        """
        counts = target != IGNORED
        place = target.where(counts, 0)[:, None]
        log_total = logits.logsumexp(dim=-1, keepdim=True)
        loss = (log_total - logits.gather(1, place))[:, 0]
        softmax = (logits - log_total).exp()
        gradient = softmax.scatter_add(1, place, -torch.ones_like(softmax[:, :1]))
        return loss * counts, gradient * counts[:, None]


def get_inputs(tokens: int, vocabulary: int) -> list[torch.Tensor]:
    """Logits at which a few words dominate; a fifth of the tokens does not count."""
    logits = 2.5 * torch.randn(tokens, vocabulary)
    target = torch.randint(0, vocabulary, (tokens,))
    return [logits, target.where(torch.rand(tokens) > 0.2, IGNORED)]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
