"""Modules of torch.nn that the rules know."""

from __future__ import annotations

MODULES: dict[str, tuple[str, str]] = {
    "ReLU": ("relu", "inplace"),
    "Sigmoid": ("sigmoid", ""),
    "Tanh": ("tanh", ""),
    "SiLU": ("silu", "inplace"),
    "GELU": ("gelu", "approximate"),
    "ELU": ("elu", "alpha inplace"),
    "SELU": ("selu", "inplace"),
    "LeakyReLU": ("leaky_relu", "negative_slope inplace"),
    "Hardtanh": ("hardtanh", "min max inplace"),
    "ReLU6": ("relu6", ""),
    "Softplus": ("softplus", "beta threshold"),
    "Mish": ("mish", "inplace"),
    "Softsign": ("softsign", ""),
    "Hardsigmoid": ("hardsigmoid", "inplace"),
    "Hardswish": ("hardswish", "inplace"),
    "Softmax": ("softmax", "dim"),
    "LogSoftmax": ("log_softmax", "dim"),
    "LayerNorm": ("layer_norm", "normalized_shape eps"),
    "RMSNorm": ("rms_norm", "normalized_shape eps"),
    "Linear": ("linear", ""),
    "Identity": ("contiguous", ""),
    "Flatten": ("flatten", "start_dim end_dim"),
}
"""By class: the rule that a module applies, and the names of its own arguments in order."""
