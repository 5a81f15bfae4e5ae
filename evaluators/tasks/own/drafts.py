"""Tasks that a model drafted: checked, written to a folder, and accepted by a person. Runs none of their code.

A draft is a `task.toml` and a `reference.py`. A model may set only `MODELS_KEYS` of the document; tolerance and rules
are left to a person. Its reference may use only the vocabulary at the end of this file.
"""

from __future__ import annotations

import ast
import builtins
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import structs

from evaluators.tasks.own.document import (
    DOCUMENT,
    NAME,
    REFERENCE,
    Document,
    Draft,
    parse_document,
    read_document,
    write_folder,
)
from evaluators.tasks.own.reading import find_folder, read_task
from messages.base import ConfigError

MODELS_KEYS = ("name", "description", "reference", "inputs", "workloads", "hidden_workloads")
"""Fields that a model may set in a document."""
_OPEN = re.compile(r"^(?P<before>\[draft\]\s.*?^accepted\s*=\s*)false\b", re.MULTILINE | re.DOTALL)


def read_draft(document: str, reference: str, name: str = "") -> Document:
    """Return the document of a draft that is a valid task.

    Args:
        document: text of a `task.toml`.
        reference: text of its `reference.py`.
        name: name of the task; empty: the document's.

    Raises:
        ConfigError: its errors, one complaint a line, for its author.
    """
    found = parse_document(document, DOCUMENT)
    if name:
        found = structs.replace(found, name=name)
    if complaints := (*_of_document(found), *(f"{REFERENCE}, {one}" for one in vet_reference(reference))):
        raise ConfigError("\n".join(complaints))
    with tempfile.TemporaryDirectory(prefix="ksearch-draft-") as folder:
        write_folder(Path(folder), found, {REFERENCE: reference})
        try:
            read_task(folder)
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{folder}/", "")) from error
    return found


def _of_document(found: Document) -> list[str]:
    plain = Document(name="", reference="")
    complaints = [
        f"{DOCUMENT}, {key}: a person says this; leave it out"
        for key in found.__struct_fields__
        if key not in MODELS_KEYS and getattr(found, key) != getattr(plain, key)
    ]
    if not NAME.fullmatch(found.name):
        complaints.append(f"{DOCUMENT}, name: {found.name!r} is no name: letters, digits and _, as a function's")
    if not found.reference.startswith(f"{REFERENCE}:"):
        complaints.append(f'{DOCUMENT}, reference: {found.reference!r}; write "{REFERENCE}:FUNCTION"')
    if isinstance(found.inputs, str):
        complaints.append(f"{DOCUMENT}, inputs: {found.inputs!r}; list them, each in its [[inputs]]")
    if not found.description.strip():
        complaints.append(f"{DOCUMENT}, description: it is empty")
    return complaints


def write_draft(parent: Path, document: Document, reference: str) -> Path:
    """Write a draft as a folder of its own, and return the folder.

    Args:
        parent: folder in which it is made.
        document: document of the draft; its name is the folder's.
        reference: text of `reference.py`.

    Raises:
        ConfigError: it exists already, or cannot be written.
    """
    folder = parent / document.name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"{str(folder)!r} is there already; name another task, or remove it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error.strerror}") from error
    write_folder(folder, document, {REFERENCE: reference})
    return folder


def draft_of(name: str) -> Draft | None:
    """Return the draft of a task that is not accepted yet; None if it is not a draft.

    Args:
        name: name of a task.

    Raises:
        ConfigError: its document cannot be read.
    """
    folder = find_folder(name)
    draft = None if folder is None else read_document(folder / DOCUMENT).draft
    return None if draft is None or draft.accepted else draft


def accept_draft(name: str) -> None:
    """Record that a person accepted a draft; the rest of its document stays unchanged.

    Raises:
        ConfigError: it is not a draft, or cannot be written.
    """
    folder = find_folder(name)
    if folder is None or draft_of(name) is None:
        raise ConfigError(f"{name!r} is no draft that waits to be accepted")
    path = folder / DOCUMENT
    changed, count = _OPEN.subn(r"\g<before>true", path.read_text(encoding="utf-8"), count=1)
    if not count:
        raise ConfigError(f"{str(path)!r} has no line 'accepted = false' under [draft]; write 'accepted = true' there")
    try:
        path.write_text(changed, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error


_MOST_BYTES = 32 << 10
_MOST_COMPLAINTS = 12
_STATEMENTS = (
    ast.FunctionDef,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.For,
    ast.If,
    ast.Expr,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.Raise,
    ast.Assert,
)
_AT_TOP = (ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.Expr)
_PYTHONS = frozenset(dir(builtins))
_NO_EXPRESSIONS = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.GeneratorExp)


def vet_reference(text: str) -> tuple[str, ...]:
    """Return the forbidden parts of a draft's reference; empty if there are none.

    Args:
        text: text of the file.
    """
    if len(text.encode("utf-8", "replace")) > _MOST_BYTES:
        return (f"it is longer than {_MOST_BYTES >> 10} KiB",)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        return (f"{line}it is no Python: {getattr(error, 'msg', error)}",)
    except (RecursionError, MemoryError):
        return ("it is nested too deeply",)
    found = dict.fromkeys(_Reader(tree).complaints())
    return tuple(found)[:_MOST_COMPLAINTS]


class _Reader:
    """Reads one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._modules = {
            name: module
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name, module in _bound(node)
        }
        """Module or object that each import binds to a name."""
        self._defined = _assigned_anywhere(tree)

    def complaints(self) -> Iterator[str]:
        """Yield the forbidden parts."""
        for statement in self._tree.body:
            if not isinstance(statement, _AT_TOP) or (
                isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
            ):
                yield f"line {statement.lineno}: at the top of the file stand imports, constants and functions only"
        for name in sorted(self._defined):
            if name in self._modules or name in _PYTHONS or name.startswith("__"):
                yield f"{name!r} is a name of Python's own or of an import; use another"
        covered = set[ast.AST]()
        # A node starts no later than its parts, so this order keeps an attribute before its owner.
        for node in sorted(ast.walk(self._tree), key=lambda node: getattr(node, "lineno", 0)):
            if node not in covered:
                yield from self._of(node, covered)

    def _of(self, node: ast.AST, covered: set[ast.AST]) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._of_import(node)
            case ast.FunctionDef(decorator_list=[_, *_], lineno=line):
                yield f"line {line}: leave out decorators"
            case ast.stmt() if not isinstance(node, _STATEMENTS):
                yield f"line {node.lineno}: leave out {_called(node)!r}"
            case ast.expr() if isinstance(node, _NO_EXPRESSIONS):
                yield f"line {node.lineno}: leave out {_called(node)!r}"
            case ast.Attribute():
                yield from self._of_attribute(node, covered)
            case ast.Name(id=name, lineno=line):
                yield from self._of_name(name, line)
            case _:
                pass

    def _of_import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if node not in self._tree.body:
            yield f"line {node.lineno}: import at the top of the file"
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        for _, module in _bound(node):
            if module not in MODULES and module not in IN_BETWEEN and not _is_word(module):
                yield (
                    f"line {node.lineno}: {module!r} cannot be imported; there are torch, torch.nn.functional, "
                    "torch.linalg, torch.special, torch.fft and math"
                )

    def _of_attribute(self, node: ast.Attribute, covered: set[ast.AST]) -> Iterator[str]:
        """Check an attribute of a module or a value; none may be assigned to."""
        if not isinstance(node.ctx, ast.Load):
            yield f"line {node.lineno}: '.{node.attr}' is assigned to; assign to names and elements only"
        owner = self._module_of(node.value)
        if owner is None:
            if node.attr.removesuffix("_") not in ATTRIBUTES:
                yield f"line {node.lineno}: '.{node.attr}' is none of the methods that a draft may use"
            return
        covered.update(ast.walk(node.value))
        whole = f"{owner}.{node.attr}"
        if not _is_word(whole) and whole not in MODULES and whole not in IN_BETWEEN:
            yield f"line {node.lineno}: {whole!r} is none of the operations that a draft may use"

    def _of_name(self, name: str, line: int) -> Iterator[str]:
        """Check that a name is a value's: modules may only stand before a dot."""
        module = self._modules.get(name)
        if module is not None and not _is_word(module):
            yield f"line {line}: the module {name!r} is used as a value; write what is taken of it"
        elif name.startswith("__") or (module is None and name not in self._defined and name not in BUILTINS):
            yield f"line {line}: {name!r} is not defined, or none of the functions that a draft may call"

    def _module_of(self, node: ast.expr) -> str | None:
        """Return the module that an expression names; None if it names none."""
        match node:
            case ast.Name(id=name):
                module = self._modules.get(name)
                return module if module in MODULES or module in IN_BETWEEN else None
            case ast.Attribute(value=value, attr=name):
                owner = self._module_of(value)
                whole = f"{owner}.{name}"
                return whole if owner is not None and (whole in MODULES or whole in IN_BETWEEN) else None
            case _:
                return None


def _is_word(whole: str) -> bool:
    """Return True if a dotted name is a permitted operation of a module."""
    module, _, name = whole.rpartition(".")
    return name in MODULES.get(module, ())


def _bound(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, with their full names."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            elif alias.name in MODULES or alias.name in IN_BETWEEN:
                # `import torch.linalg` binds `torch`.
                yield alias.name.partition(".")[0], alias.name.partition(".")[0]
            else:
                yield alias.name, alias.name
        return
    for alias in node.names:
        yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def _assigned_anywhere(tree: ast.Module) -> set[str]:
    """Return the names of functions, arguments and assigned variables."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


def _called(node: ast.AST) -> str:
    return {"With": "with", "While": "while", "ClassDef": "class", "GeneratorExp": "a generator"}.get(
        type(node).__name__, type(node).__name__.lower()
    )


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
"""Permitted names of each module, in full."""
ATTRIBUTES: Final = _words(_DTYPES, _OPERATIONS, _METHODS)
"""Permitted attributes of anything else: methods of tensors and lists. A `_` at the end of a name is ignored."""
BUILTINS: Final = _words(_BUILTINS)
"""Permitted names that need no definition."""
IN_BETWEEN: Final = frozenset({"torch.nn"})
"""Modules of which only submodules may be used."""
