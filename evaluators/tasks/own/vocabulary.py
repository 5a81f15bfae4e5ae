"""The words that a drafted reference may use: operations on tensors, and nothing that reaches past them.

A list of what is allowed, since what torch's modules hold besides operations (the interpreter's own modules, loaders of
files, compilers) is more than a list of what is forbidden would keep up with. What is missing here can be written with
what is there, or by a person.
"""

from __future__ import annotations

from typing import Final

_DTYPES = """
    bfloat16 bool double float float16 float32 float64 half int int16 int32 int64 int8 long uint8
"""
_OPERATIONS = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv all allclose amax amin aminmax any arange argmax
    argmin argsort asin asinh atan atan2 atanh baddbmm bernoulli bincount bitwise_and bitwise_not bitwise_or
    bitwise_xor block_diag bmm broadcast_to bucketize cartesian_prod cat cdist ceil chunk clamp clamp_max clamp_min
    clip clone column_stack combinations complex concat concatenate copysign cos cosh count_nonzero cov cross cummax
    cummin cumprod cumsum deg2rad diag diag_embed diagonal diff dist div divide dot dstack einsum empty empty_like eq
    equal erf erfc erfinv exp exp2 expand_copy expm1 eye finfo flatten flip fliplr flipud float_power floor
    floor_divide fmax fmin fmod frac frexp full full_like gather ge gradient greater greater_equal gt heaviside
    histc hstack hypot i0 iinfo index_add index_copy index_fill index_reduce index_select inner isclose isfinite isin
    isinf isnan isneginf isposinf kron kthvalue ldexp le lerp less less_equal lgamma linspace log log10 log1p log2
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp lt
    masked_fill masked_scatter masked_select matmul matrix_power max maximum mean median meshgrid min minimum mm mode
    moveaxis movedim mul multiply mv nan_to_num nanmean nanmedian nanquantile nansum narrow ne neg negative nextafter
    no_grad nonzero norm normal not_equal numel ones ones_like outer permute polar polygamma positive pow prod
    promote_types quantile rad2deg ravel real imag reciprocal relu remainder renorm repeat_interleave reshape roll
    rot90 round rsqrt scalar_tensor scatter scatter_add scatter_reduce searchsorted select select_scatter sgn sigmoid
    sign signbit sin sinc sinh slice_scatter softmax log_softmax sort split sqrt square squeeze stack std std_mean
    sub subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor tensor_split tensordot tile topk trace
    transpose trapezoid tril tril_indices triu triu_indices trunc true_divide unbind unflatten unique
    unravel_index unsqueeze vander var var_mean vdot view_as_complex view_as_real vstack where xlogy zeros zeros_like
"""
_METHODS = """
    T mT H mH contiguous cpu detach device dim dtype element_size expand expand_as fill_diagonal item itemsize
    index_put is_complex is_contiguous is_floating_point masked_fill nbytes ndim ndimension new_empty new_full
    new_ones new_tensor new_zeros unfold nelement repeat reshape_as shape size stride sum_to_size to tolist view view_as
    values indices mantissa exponent eps tiny bits smallest_normal
    append extend items keys get index count insert pop
"""
_FUNCTIONAL = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d avg_pool1d avg_pool2d avg_pool3d batch_norm celu
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity cross_entropy
    dropout elu embedding embedding_bag fold gelu glu group_norm gumbel_softmax hardshrink hardsigmoid hardswish
    hardtanh huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu linear local_response_norm
    log_softmax logsigmoid max_pool1d max_pool2d max_pool3d mish mse_loss nll_loss normalize one_hot pad
    pairwise_distance pixel_shuffle pixel_unshuffle prelu relu relu6 rms_norm scaled_dot_product_attention selu
    sigmoid silu smooth_l1_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold unfold
"""
_LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv lstsq lu matmul matrix_exp matrix_norm matrix_power multi_dot norm
    pinv qr slogdet solve solve_triangular svd svdvals tensorsolve vecdot vector_norm
"""
_SPECIAL = """
    bessel_j0 bessel_j1 digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr
    log_softmax logit logsumexp ndtr ndtri softmax xlog1py xlogy zeta
"""
_FFT = "fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
_MATH = """
    ceil comb copysign cos e erf exp expm1 fabs floor gcd hypot inf isqrt log log10 log1p log2 nan pi pow prod sin
    sqrt tan tanh trunc
"""
_BUILTINS = """
    AssertionError False None True ValueError abs all any bool dict enumerate float int isinstance len list max min
    range reversed round slice sorted sum tuple zip
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


MODULES: Final = {
    "torch": _words(_DTYPES, _OPERATIONS, "Tensor"),
    "torch.nn.functional": _words(_FUNCTIONAL),
    "torch.linalg": _words(_LINALG),
    "torch.special": _words(_SPECIAL),
    "torch.fft": _words(_FFT),
    "math": _words(_MATH),
}
"""What may be taken of each module, by its whole name."""
ATTRIBUTES: Final = _words(_DTYPES, _OPERATIONS, _METHODS)
"""What may be taken of anything else: methods of tensors and lists. One that ends with `_` counts as without it."""
BUILTINS: Final = _words(_BUILTINS)
"""Names that are there without being defined."""
IN_BETWEEN: Final = frozenset({"torch.nn"})
"""Modules that only others are taken of."""
