"""Torch operators that a candidate may call if no library may do the work.

Always permitted are views, copies, casts, fills, shapes and random numbers. Plain elementwise operators are permitted
unless the reference consists of them; operators that move elements by an index only if the reference calls such
operators. All other operators of the dispatcher are denied, in all namespaces, unless the task allows them by name.
Names are those of the dispatcher, without overload: `aten::mm`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from evaluators.build.policy.symbols import LIBRARIES
from messages.base import ConfigError
from messages.tasks import TaskRules


def parse_allowed(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas: operators (`aten::mm`), their families, libraries.

    Raises:
        ConfigError: a name is not known.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = (*FAMILIES, *LIBRARIES)
    for name in names:
        if name.startswith("aten::") or name in known:
            continue
        close = difflib.get_close_matches(name.removeprefix("lib"), known, n=1)
        suggestion = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"{name!r} is nothing that can be allowed{suggestion} (operators: aten::NAME; families of operators: "
            f"{', '.join(FAMILIES)}; libraries: {', '.join(LIBRARIES)})"
        )
    return names


PERMITTED = (
    "Of torch's operators only these may be called: views, copies, casts, fills, random numbers, indexing unless the "
    "reference calls it, and plain elementwise operators unless the reference consists of them."
)
"""The rule in words, for people and models."""

_FAMILIES: dict[str, str] = {
    "matmul": "mm bmm addmm baddbmm addbmm mv addmv dot vdot matmul linear einsum bilinear tensordot inner outer "
    "ger addr chain_matmul linalg_multi_dot linalg_matmul linalg_vecdot linalg_matrix_power matrix_power "
    "_addmm_activation _int_mm _scaled_mm _scaled_grouped_mm _grouped_mm _sparse_mm "
    "_sparse_semi_structured_mm _sparse_semi_structured_linear _sparse_semi_structured_addmm "
    "_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu "
    "_weight_int4pack_mm_with_scales_and_zeros _dyn_quant_matmul_4bit _mixed_dtypes_linear "
    "_cslt_sparse_mm mkldnn_linear _trilinear kron smm hspmm sspaddmm _sparse_addmm sparse_sampled_addmm "
    "fbgemm_linear_int8_weight fbgemm_linear_fp16_weight _wrapped_linear_prepack "
    "_wrapped_quantized_linear_prepacked fbgemm_linear_fp16_weight_fp32_activation "
    "fbgemm_linear_int8_weight_fp32_activation cdist _cdist_forward _euclidean_dist pdist _pdist_forward "
    "corrcoef cov linalg_inv linalg_solve",
    "convolution": "convolution _convolution _convolution_mode convolution_overrideable conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d mkldnn_convolution cudnn_convolution "
    "cudnn_convolution_relu cudnn_convolution_add_relu cudnn_convolution_transpose miopen_convolution "
    "_slow_conv2d_forward thnn_conv2d slow_conv3d slow_conv3d_forward slow_conv_transpose2d "
    "slow_conv_transpose3d slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d "
    "_nnpack_spatial_convolution",
    "attention": "scaled_dot_product_attention _scaled_dot_product_attention_math "
    "_scaled_dot_product_attention_math_for_mps _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable "
    "_flash_attention_forward _efficient_attention_forward _cudnn_attention_forward _fused_sdp_choice "
    "_native_multi_head_attention _triton_multi_head_attention _triton_scaled_dot_attention "
    "_transformer_encoder_layer_fwd",
    "softmax": "softmax _softmax log_softmax _log_softmax _safe_softmax _masked_softmax logsumexp special_softmax "
    "special_log_softmax special_logsumexp _sparse_softmax _sparse_log_softmax softmin",
    "normalisation": "layer_norm native_layer_norm _fused_rms_norm rms_norm group_norm native_group_norm batch_norm "
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_batch_norm_with_update _batch_norm_no_update _batch_norm_impl_index cudnn_batch_norm "
    "miopen_batch_norm batch_norm_stats batch_norm_elemt instance_norm quantized_batch_norm renorm",
    "recurrent": "lstm lstm_cell gru gru_cell rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell mkldnn_rnn_layer "
    "_cudnn_rnn miopen_rnn _thnn_fused_lstm_cell _thnn_fused_gru_cell quantized_lstm_cell "
    "quantized_gru_cell",
    "transform": "_fft_c2c _fft_r2c _fft_c2r fft_fft fft_rfft fft_ifft fft_irfft stft istft",
    "reduction": "sum nansum mean nanmean amax amin aminmax max min argmax argmin prod var var_mean std std_mean norm "
    "linalg_vector_norm linalg_norm linalg_matrix_norm native_norm all any median nanmedian mode "
    "count_nonzero segment_reduce bincount histc trace",
    "scan": "cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp "
    "cumulative_trapezoid",
    "sorting": "sort argsort topk kthvalue msort unique_consecutive _unique2 unique_dim searchsorted bucketize",
    "activation": "gelu relu relu6 silu mish sigmoid hardsigmoid hardswish hardtanh hardshrink softshrink leaky_relu "
    "elu selu celu prelu _prelu_kernel rrelu rrelu_with_noise softplus log_sigmoid log_sigmoid_forward "
    "glu threshold logit special_expit _shrink",
    "pooling": "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d "
    "mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool2d",
    "indexing": "embedding embedding_bag _embedding_bag _embedding_bag_forward_only gather take take_along_dim "
    "scatter scatter_add scatter_reduce index_add index_copy index_reduce index_put _unsafe_index_put "
    "index_select put masked_select masked_scatter one_hot",
    "loss": "mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward "
    "nll_loss_nd cross_entropy_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div ctc_loss "
    "_ctc_loss cosine_embedding_loss triplet_margin_loss margin_ranking_loss hinge_embedding_loss "
    "multi_margin_loss multilabel_margin_loss soft_margin_loss poisson_nll_loss gaussian_nll_loss "
    "cosine_similarity pairwise_distance",
    "resampling": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_bilinear2d_aa grid_sampler grid_sampler_2d grid_sampler_3d pixel_shuffle pixel_unshuffle "
    "im2col col2im",
}
"""Families of operators that a task may allow together. They are denied, except those permitted below."""

_ELEMENTWISE_NAMES = (
    "add sub rsub mul div floor_divide remainder fmod true_divide multiply divide subtract neg negative positive "
    "abs absolute sign sgn signbit addcmul addcdiv lerp pow square sqrt rsqrt reciprocal exp exp2 expm1 log log2 "
    "log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh arcsin arccos arctan arctan2 "
    "arcsinh arccosh arctanh erf erfc erfinv floor ceil round trunc fix frac clamp clamp_min clamp_max clip maximum "
    "minimum fmax fmin where masked_fill eq ne lt le gt ge not_equal less less_equal greater greater_equal isnan "
    "isinf isfinite isneginf isposinf isreal isclose logical_and logical_or logical_not logical_xor bitwise_and "
    "bitwise_or bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ "
    "__rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ logaddexp logaddexp2 hypot xlogy nan_to_num "
    "special_erf special_erfc special_erfinv special_exp2 special_expm1 special_log1p special_round special_sinc "
    "special_xlogy sinc heaviside float_power copysign ldexp frexp nextafter gcd lcm deg2rad rad2deg digamma lgamma "
    "angle complex polar conj_physical _conj_physical"
)
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())

_MOVE_NAMES = (
    "gather take take_along_dim index_select index_copy index_put _index_put_impl _unsafe_index_put put "
    "masked_select masked_scatter embedding nonzero nonzero_numpy argwhere"
)
_MOVES = frozenset(_MOVE_NAMES.split())
"""Operators that move elements by an index or a mask."""

_GLUE_NAMES = (
    "view _unsafe_view reshape _reshape_alias _reshape_copy view_as reshape_as permute transpose t numpy_T mT mH "
    "matrix_H adjoint swapaxes swapdims movedim moveaxis expand expand_as broadcast_to broadcast_tensors unsqueeze "
    "squeeze flatten unflatten slice select narrow split split_with_sizes chunk unbind tensor_split hsplit vsplit "
    "dsplit unsafe_split unsafe_split_with_sizes unsafe_chunk as_strided alias detach contiguous clone copy "
    "_copy_from _copy_from_and_resize _to_copy to type_as chalf empty empty_like empty_strided empty_permuted "
    "new_empty new_empty_strided zeros zeros_like new_zeros _new_zeros_with_same_feature_meta ones ones_like "
    "new_ones full full_like new_full fill index_fill fill_diagonal zero arange range linspace logspace eye "
    "scalar_tensor lift_fresh lift cat concat concatenate stack _stack hstack vstack dstack column_stack row_stack "
    "block_diag repeat repeat_interleave tile flip fliplr flipud roll rot90 tril triu tril_indices triu_indices "
    "diagonal diag diag_embed diagflat unfold index _unsafe_index constant_pad_nd pad _pad_enum _pad_circular "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d dim "
    "size stride storage_offset numel sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous "
    "is_contiguous dense_dim sparse_dim get_device is_complex is_floating_point is_signed is_conj is_neg "
    "is_inference is_leaf is_pinned is_same_size is_set_to is_nonzero is_distributed is_coalesced _is_zerotensor "
    "result_type can_cast promote_types set set_data data resize resize_as _resize_output requires_grad retain_grad "
    "retains_grad output_nr _version record_stream _fw_primal _make_dual _unpack_dual _lazy_clone "
    "_has_compatible_shallow_copy_type _has_same_storage_numel _debug_has_internal_overlap _assert_async "
    "_assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar sym_constrain_range "
    "sym_constrain_range_for_size _print _shape_as_tensor item _local_scalar_dense dropout native_dropout "
    "alpha_dropout feature_dropout feature_alpha_dropout _fused_dropout view_as_real view_as_complex real imag conj "
    "_conj _neg_view resolve_conj resolve_neg equal meshgrid cartesian_prod _pin_memory pin_memory "
    "_autocast_to_full_precision _autocast_to_reduced_precision rand randn rand_like randn_like randint "
    "randint_like randperm uniform normal normal_functional random bernoulli exponential log_normal cauchy "
    "geometric atleast_1d atleast_2d atleast_3d ravel slice_scatter select_scatter diagonal_scatter "
    "as_strided_scatter flatten_dense_tensors unflatten_dense_tensors _cast_Byte _cast_Char _cast_Double "
    "_cast_Float _cast_Half _cast_Int _cast_Long _cast_Short"
)
_GLUE = frozenset(name + ending for name in _GLUE_NAMES.split() for ending in ("", "_copy"))
"""Operators that move and create data without computing; random ones, which are in no reference; and torch's
bookkeeping."""

_BOOKKEEPING = ("prim", "profiler")
"""Namespaces of the dispatcher that compute nothing."""

FAMILIES: dict[str, frozenset[str]] = {
    **{family: frozenset(names.split()) for family, names in _FAMILIES.items()},
    "elementwise": _ELEMENTWISE,
}
"""Operators of ATen in each family, by their names without `aten::`. A task may allow a family by its name."""


def denied_operators(called: Iterable[str], rules: TaskRules, known: Iterable[str]) -> tuple[str, ...]:
    """Return the operators that candidates may not call; none if library calls are allowed.

    Args:
        called: operators of the reference, by the dispatcher's names.
        rules: the task's rules.
        known: all operators of this build of torch, with or without overload.
    """
    if rules.library_calls == "allow":
        return ()
    permitted = _permitted({bare_name(name).removeprefix("aten::") for name in called})
    allowed = permitted.union(*(FAMILIES.get(name, (name.removeprefix("aten::"),)) for name in rules.allowed))
    return tuple(
        sorted(
            name
            for name in {bare_name(full) for full in known}
            if name.removeprefix("aten::") not in allowed and name.partition("::")[0] not in _BOOKKEEPING
        )
    )


def _permitted(called: set[str]) -> set[str]:
    core = called - _GLUE
    activations = FAMILIES["activation"]
    permitted = set(_GLUE)
    if not core or not core <= _ELEMENTWISE | activations:
        permitted |= _ELEMENTWISE
        if not core & activations:
            permitted |= activations
    if not core & FAMILIES["indexing"]:
        permitted |= _MOVES
    if not core & FAMILIES["reduction"]:
        permitted |= {"any", "all"}  # of which torch makes its own checks, as in `nn.init.trunc_normal_`
    return permitted


def say_rules(rules: TaskRules) -> str:
    """Return the permitted operators in words, for authors of programs that use torch."""
    if rules.library_calls == "allow":
        return "Every operator of torch may be called."
    but = f" Allowed nevertheless: {', '.join(rules.allowed)}." if rules.allowed else ""
    return (
        f"{PERMITTED} Every other operator raises, from wherever it is called: matmul, softmax, sum, max, sort, "
        "fused and backward operators, and numpy's linear algebra. The candidate is then rejected, also if it catches "
        f"the error. `torch.compile` may not be called.{but}"
    )


def bare_name(operator: str) -> str:
    """Return an operator's name without overload, and without the underscore of in-place operators."""
    name = operator.partition(".")[0]
    return name.removesuffix("_") if not name.endswith("__") else name
