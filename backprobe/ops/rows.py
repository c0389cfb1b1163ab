"""The rows of the operator table: one for each operator of which backprobe has to know something.

`tests/test_ops.py` checks each fact against torch: on the samples of torch's own operator database, or on inputs that
stand in that file.
"""

from __future__ import annotations

from functools import partial

from .info import (
    ALL_INPUTS,
    EDGES,
    FINITE,
    GAPS,
    NORMALISES,
    OVERFLOWS,
    POLE,
    ZERO,
    ConditionalWrite,
    OpInfo,
)

ONE_VALUE = (
    "Of a single value it is 0/0 with the correction that is the default: pass correction=0, or give it more than one."
)

#: Function of ``torch.nn`` that writes to its first argument if ``inplace`` is given.
IN_PLACE = ConditionalWrite("inplace", (0,))

# Kinds of rows: what several operators have in common.
_view = partial(OpInfo, is_view=True, moves_values=True, forward=FINITE)
_reshape = partial(OpInfo, is_view=True, reshapes=True, moves_values=True, forward=FINITE)
_move = partial(OpInfo, moves_values=True, forward=FINITE)
_fill = partial(OpInfo, is_fill=True, forward=FINITE)
_sum = partial(OpInfo, forward=FINITE, mixes_inf=True, adds_terms=True)
_product = partial(OpInfo, forward=FINITE, mixes_inf=True, amplifies=True, adds_terms=True)
_bounded = partial(OpInfo, forward=FINITE, is_bounded=True)
_flat = partial(OpInfo, forward=FINITE, keeps_nan=True, has_flat_parts=True)
_saturating = partial(OpInfo, forward=FINITE, is_bounded=True, saturates=True, keeps_nan=True, has_flat_parts=True)
_step = partial(OpInfo, forward=FINITE, keeps_nan=True, zero_derivative=True)
_exponential = partial(OpInfo, forward=OVERFLOWS, keeps_nan=True)
_pole = partial(OpInfo, forward=POLE, singular_at=ZERO)
_edge = partial(OpInfo, forward=POLE, singular_at=EDGES)
_dropout = partial(OpInfo, may_be_view=True, forward=FINITE, mixes_inf=True, is_random=True, conditional_write=IN_PLACE)
_draw = partial(OpInfo, forward=FINITE, zero_derivative=True, is_random=True, overwrites=True)
_random_source = partial(OpInfo, forward=FINITE, creates=True, is_random=True)

#: Views: the result shares the memory of the first input.
VIEWS: tuple[OpInfo, ...] = (
    _reshape("view", aliases=("view_as",), changes_shape=True),
    _reshape("_unsafe_view", changes_shape=True),
    _reshape("_reshape_alias", changes_shape=True),
    _move("reshape", aliases=("reshape_as",), may_be_view=True, reshapes=True, makes=("view",), changes_shape=True),
    _move("flatten", aliases=("ravel",), may_be_view=True, reshapes=True, makes=("view",), changes_shape=True),
    _reshape("unflatten", changes_shape=True),
    _reshape("transpose", aliases=("swapaxes", "swapdims", "mT", "mH", "H", "adjoint"), moves_dimensions=True),
    _reshape("t", aliases=("numpy_T",), moves_dimensions=True),
    _reshape("permute", aliases=("movedim", "moveaxis"), moves_dimensions=True),
    _reshape("squeeze", changes_shape=True),
    _reshape("unsqueeze", changes_shape=True),
    _reshape("alias"),
    _reshape("detach", is_elementwise=True),
    _view("requires_grad"),
    _move("contiguous", may_be_view=True, reshapes=True, is_elementwise=True),
    _reshape("positive"),
    _move("conj", aliases=("conj_physical", "resolve_conj", "resolve_neg"), may_be_view=True),
    _reshape("atleast_1d", aliases=("atleast_2d", "atleast_3d"), changes_shape=True),
    _move("cartesian_prod", may_be_view=True),
    _reshape("lift_fresh"),
    OpInfo("as_strided", is_view=True, forward=FINITE),
    _view("expand", aliases=("expand_as", "broadcast_to", "broadcast_tensors", "meshgrid")),
    _view("narrow"),
    _view("select"),
    _view("slice"),
    _view("chunk", aliases=("unsafe_chunk",), makes=("split",), gives_parts=True),
    _view("split", aliases=("split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"), gives_parts=True),
    _view("tensor_split", aliases=("hsplit", "vsplit", "dsplit"), gives_parts=True),
    _view("unbind", gives_parts=True),
    _view("diagonal", aliases=("linalg_diagonal",)),
    _view("unfold"),
    _view("real", aliases=("imag",)),
    OpInfo("view_as_real", is_view=True),
    OpInfo("view_as_complex", is_view=True),
    _move(
        "getitem", aliases=("__getitem__",), may_be_view=True, makes=("select", "slice", "index"), chooses_by_index=True
    ),
    OpInfo("attribute", aliases=("__get__",), moves_values=True),
)

#: Operators whose result holds values of their inputs only.
MOVES: tuple[OpInfo, ...] = (
    _move("clone", reshapes=True, is_elementwise=True),
    _move("copy", aliases=("CopyBackwards",), forgets_inputs=True, overwrites=True),
    OpInfo(
        "to",
        aliases=("_to_copy", "type", "float", "double", "half", "bfloat16", "type_as", "cpu", "cuda"),
        may_be_view=True,
        casts=True,
        forward=FINITE,
        keeps_nan=True,
        is_elementwise=True,
    ),
    _move(
        "cat",
        aliases=("concat", "concatenate", "hstack", "vstack", "dstack", "row_stack", "column_stack"),
        forgets_inputs=True,
        joins_inputs=True,
    ),
    _move("stack", forgets_inputs=True, joins_inputs=True),
    _move("roll"),
    _move("flip", aliases=("fliplr", "flipud")),
    _move("rot90"),
    _move("gather", aliases=("take_along_dim",), chooses_by_index=True),
    _move("index", aliases=("_unsafe_index",), drops_inputs=True, chooses_by_index=True),
    _move("index_select", chooses_by_index=True),
    _move("take", chooses_by_index=True),
    _move("repeat", aliases=("tile",)),
    _move("repeat_interleave"),
    _move("sort", aliases=("msort",), gives_indices=True),
    _move("topk", gives_indices=True),
    _move("kthvalue", gives_indices=True),
    _move("mode", gives_indices=True),
    _move("median", aliases=("nanmedian",), gives_indices=True),
    _move("max", makes=("maximum",), gives_indices=True, is_extreme=True),
    _move("min", makes=("minimum",), gives_indices=True, is_extreme=True),
    _move("amax", is_extreme=True),
    _move("amin", is_extreme=True),
    _move("aminmax"),
    _move("cummax", gives_indices=True),
    _move("cummin", gives_indices=True),
    _move("maximum", has_flat_parts=True, is_elementwise=True, is_extreme=True),
    _move("minimum", has_flat_parts=True, is_elementwise=True, is_extreme=True),
    _move("fmax", has_flat_parts=True),
    _move("fmin", has_flat_parts=True),
    _move("masked_select", drops_inputs=True, chooses_by_index=True),
    _move("index_copy"),
    _move("embedding", conditional_write=ConditionalWrite("max_norm", (1,))),
    _move("pixel_shuffle"),
    _move("pixel_unshuffle"),
    _move("channel_shuffle"),
    _move("max_pool1d", makes=("max_pool2d",)),
    _move("max_pool2d", aliases=("max_pool2d_with_indices",)),
    _move("max_pool3d", aliases=("max_pool3d_with_indices",)),
    _move("adaptive_max_pool1d", makes=("adaptive_max_pool2d",)),
    _move("adaptive_max_pool2d"),
    _move("adaptive_max_pool3d"),
    _move("reflection_pad1d"),
    _move("reflection_pad2d"),
    _move("reflection_pad3d"),
    _move("replication_pad1d"),
    _move("replication_pad2d"),
    _move("replication_pad3d"),
    _move("upsample_nearest1d"),
    _move("upsample_nearest2d"),
    _move("upsample_nearest3d"),
    _move("unique", aliases=("unique_consecutive",)),
    OpInfo("nan_to_num", is_exact=True, forward=FINITE, saturates=True, is_elementwise=True),
)

#: Operators that write a constant, or given values, to some places: an Inf from them is intended.
FILLS: tuple[OpInfo, ...] = (
    _fill("masked_fill", drops_inputs=True),
    _fill("index_fill", drops_inputs=True),
    _fill("fill", zero_derivative=True, overwrites=True),
    _fill("full", aliases=("full_like", "new_full"), creates=True, takes_python_values=True),
    _move("where", is_fill=True, drops_inputs=True, forgets_inputs=True, is_elementwise=True),
    _fill("triu"),
    _fill("tril"),
    _fill("constant_pad_nd", aliases=("pad",)),
    _fill("scatter", drops_inputs=True, forgets_inputs=True),
    _fill("index_put", aliases=("_index_put_impl",), drops_inputs=True, forgets_inputs=True),
    _fill("setitem", aliases=("__setitem__",), takes_python_values=True, makes=("copy_slices",)),
    _move("masked_scatter", is_fill=True, drops_inputs=True, forgets_inputs=True),
    _fill("copy_slices", forgets_inputs=True),
    _move("slice_scatter", is_fill=True, forgets_inputs=True),
    _move("select_scatter", is_fill=True, forgets_inputs=True),
    _move("diagonal_scatter", is_fill=True, forgets_inputs=True),
    _fill("put"),
    _fill("fill_diagonal"),
    _fill("zero", zero_derivative=True, overwrites=True),
    _fill("zeros", aliases=("zeros_like", "new_zeros"), creates=True),
    _fill("ones", aliases=("ones_like", "new_ones"), creates=True),
)

#: Sums, products and operators built from them.
ARITHMETIC: tuple[OpInfo, ...] = (
    _sum("add", aliases=("__add__",), added_inputs=ALL_INPUTS, forgets_inputs=True, is_elementwise=True),
    _sum("sub", aliases=("subtract",), added_inputs=ALL_INPUTS, forgets_inputs=True, is_elementwise=True),
    _sum("rsub", keeps_nan=True, added_inputs=ALL_INPUTS, forgets_inputs=True, source_name="sub", is_elementwise=True),
    OpInfo(
        "neg",
        aliases=("negative",),
        is_exact=True,
        forward=FINITE,
        keeps_nan=True,
        is_elementwise=True,
        scales_input=True,
    ),
    OpInfo(
        "mul",
        aliases=("multiply",),
        forward=FINITE,
        mixes_inf=True,
        amplifies=True,
        drops_inputs=True,
        is_elementwise=True,
        scales_input=True,
    ),
    _pole(
        "div",
        aliases=("divide", "true_divide", "truediv"),
        remedy="The divisor is zero or nearly so: keep it away from zero (clamp(min=1) for a count, an eps for a "
        "norm), or skip such a batch.",
        singular_for_some_arguments=True,
        is_elementwise=True,
        scales_input=True,
    ),
    OpInfo("floor_divide", aliases=("floordiv",), forward=POLE),
    OpInfo("remainder", aliases=("fmod", "mod"), forward=POLE),
    _pole("reciprocal", is_elementwise=True),
    OpInfo("square", forward=FINITE, keeps_nan=True, amplifies=True, makes=("pow",), is_elementwise=True),
    _pole("pow", aliases=("float_power",), singular_for_some_arguments=True, is_elementwise=True),
    _product("sum", aliases=("sum_to_size",), is_total=True),
    _product("nansum", is_total=True),
    _sum("mean", nan_if_empty=True, is_total=True),
    _sum("nanmean", nan_if_empty=True, makes=("nansum", "div"), is_total=True),
    _product("cumsum"),
    _product("mm"),
    _product("bmm"),
    _product("mv"),
    _product("dot", aliases=("vdot", "inner", "linalg_vecdot")),
    _product("matmul", aliases=("__matmul__",), makes=("mm", "mv", "dot")),
    _product("addmm", added_inputs=(0,)),
    _product("addmv", added_inputs=(0,)),
    _product("addbmm", added_inputs=(0,)),
    _product("baddbmm", added_inputs=(0,)),
    _product("linear", added_inputs=(2,), makes=("addmm",)),
    _product(
        "convolution",
        aliases=(
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "convolution_overrideable",
            "mkldnn_convolution",
            "cudnn_convolution",
            "miopen_convolution",
        ),
        added_inputs=(2,),
    ),
    _sum("lerp", is_elementwise=True),
    _product("addcmul"),
    _pole("addcdiv"),
    _sum("index_add"),
    _sum("scatter_add"),
    _sum("scatter_reduce"),
    _sum("embedding_bag", conditional_write=ConditionalWrite("max_norm", (1,))),
    _sum("avg_pool1d", makes=("avg_pool2d",)),
    _sum("avg_pool2d"),
    _sum("avg_pool3d"),
    _sum("adaptive_avg_pool1d", makes=("adaptive_avg_pool2d",)),
    _sum("adaptive_avg_pool2d"),
    _sum("adaptive_avg_pool3d"),
    _sum("upsample_bilinear2d"),
    OpInfo("prod", forward=OVERFLOWS, amplifies=True),
    OpInfo("cumprod", forward=OVERFLOWS, amplifies=True),
    _pole("foreach_div"),
    _pole("foreach_sqrt"),
)

#: Functions of one value at a time.
ACTIVATIONS: tuple[OpInfo, ...] = (
    OpInfo("abs", aliases=("absolute",), is_exact=True, forward=FINITE, keeps_nan=True, is_elementwise=True),
    _flat("relu", clips=True, is_exact=True, is_bounded=True, conditional_write=IN_PLACE, is_elementwise=True),
    _saturating("relu6", clips=True, is_exact=True, conditional_write=IN_PLACE, makes=("hardtanh",)),
    _saturating("hardtanh", clips=True, is_exact=True, conditional_write=IN_PLACE),
    OpInfo("threshold", clips=True, is_exact=True, forward=FINITE, has_flat_parts=True, conditional_write=IN_PLACE),
    _flat("clamp", aliases=("clip",), clips=True, is_exact=True, is_elementwise=True),
    _flat("clamp_min", clips=True, is_exact=True, is_elementwise=True),
    _flat("clamp_max", clips=True, is_exact=True, is_elementwise=True),
    _bounded("leaky_relu", keeps_nan=True, conditional_write=IN_PLACE, is_elementwise=True),
    OpInfo(
        "rrelu",
        aliases=("rrelu_with_noise", "rrelu_with_noise_functional"),
        forward=FINITE,
        keeps_nan=True,
        is_random=True,
        conditional_write=IN_PLACE,
    ),
    _flat("elu", conditional_write=IN_PLACE, is_elementwise=True),
    _flat("selu", conditional_write=IN_PLACE, makes=("elu",)),
    _flat("celu", conditional_write=IN_PLACE),
    _bounded("gelu", has_flat_parts=True, is_elementwise=True),
    _bounded("silu", has_flat_parts=True, conditional_write=IN_PLACE, is_elementwise=True),
    _bounded("mish", has_flat_parts=True, conditional_write=IN_PLACE),
    OpInfo("hardswish", clips=True, forward=FINITE, has_flat_parts=True, conditional_write=IN_PLACE),
    _saturating("hardsigmoid", clips=True, conditional_write=IN_PLACE),
    OpInfo("hardshrink", is_exact=True, forward=FINITE, has_flat_parts=True),
    OpInfo("softshrink", forward=FINITE, has_flat_parts=True),
    _saturating("sigmoid", aliases=("special_expit",), is_elementwise=True),
    _saturating("tanh", is_elementwise=True),
    _flat("softplus", is_bounded=True, is_elementwise=True),
    _flat("log_sigmoid", aliases=("log_sigmoid_forward",), is_bounded=True, is_elementwise=True),
    OpInfo("softsign", forward=FINITE, makes=("div",)),
    OpInfo("tanhshrink", forward=FINITE, makes=("sub",)),
    _saturating("erf", aliases=("special_erf",), is_elementwise=True),
    _saturating("erfc", aliases=("special_erfc",)),
    _bounded("sin", is_elementwise=True),
    _bounded("cos", is_elementwise=True),
    _bounded("atan", aliases=("arctan",), saturates=True, keeps_nan=True),
    OpInfo("atan2", aliases=("arctan2",), forward=FINITE, saturates=True, is_elementwise=True),
    OpInfo("asinh", aliases=("arcsinh",), forward=FINITE, keeps_nan=True),
    OpInfo("sign", is_exact=True, forward=FINITE, saturates=True, zero_derivative=True, is_elementwise=True),
    OpInfo("sgn", forward=FINITE, zero_derivative=True),
    _step("round"),
    _step("floor", is_exact=True),
    _step("ceil", is_exact=True),
    _step("trunc", aliases=("fix",), is_exact=True),
    OpInfo("heaviside", is_exact=True, forward=FINITE),
    OpInfo("frac", forward=FINITE),
    _exponential("exp", has_flat_parts=True, is_elementwise=True),
    _exponential("exp2", aliases=("special_exp2",), has_flat_parts=True),
    _exponential("expm1", aliases=("special_expm1",), has_flat_parts=True, is_elementwise=True),
    _exponential("sinh"),
    _exponential("cosh"),
    OpInfo("tan", forward=FINITE),
    _pole("log", is_elementwise=True),
    _pole("log2", is_elementwise=True),
    _pole("log10", is_elementwise=True),
    _edge("log1p", aliases=("special_log1p",), is_elementwise=True),
    _pole("sqrt", is_elementwise=True),
    _pole("rsqrt", is_elementwise=True),
    _edge("acos", aliases=("arccos",)),
    _edge("asin", aliases=("arcsin",)),
    _edge("acosh", aliases=("arccosh",)),
    _edge("atanh", aliases=("arctanh",)),
    _pole("logit", aliases=("special_logit",)),
    _edge("erfinv", aliases=("special_erfinv",)),
    _pole("lgamma", aliases=("special_gammaln",)),
    _pole("digamma", aliases=("special_digamma", "special_psi")),
    _pole("polygamma", aliases=("special_polygamma",)),
    _pole("mvlgamma", aliases=("special_multigammaln",)),
    _pole("xlogy", aliases=("special_xlogy",), is_elementwise=True),
    _edge("special_xlog1py"),
    _pole("special_entr"),
    _edge("special_ndtri"),
    OpInfo("sinc", aliases=("special_sinc",), forward=FINITE),
    OpInfo("angle", forward=FINITE, saturates=True, zero_derivative=True),
    OpInfo("hypot", forward=FINITE, singular_at=ZERO, is_elementwise=True),
    OpInfo("logaddexp", forward=FINITE, is_elementwise=True),
    OpInfo("logaddexp2", forward=FINITE),
    OpInfo("ldexp", forward=OVERFLOWS),
)

#: Norms, variances, normalisations and losses.
NORMS: tuple[OpInfo, ...] = (
    OpInfo(
        "norm",
        aliases=("linalg_vector_norm", "linalg_norm", "linalg_matrix_norm"),
        forward=FINITE,
        makes=("linalg_vector_norm", "sum"),
    ),
    OpInfo("cdist", aliases=("_cdist_forward",), forward=FINITE),
    OpInfo("euclidean_dist", forward=FINITE),
    OpInfo("dist", forward=FINITE),
    OpInfo("renorm", forward=FINITE),
    OpInfo("std", forward=POLE, mixes_inf=True, remedy=ONE_VALUE),
    OpInfo("std_mean", forward=POLE, mixes_inf=True, remedy=ONE_VALUE),
    OpInfo("var", forward=POLE, mixes_inf=True, remedy=ONE_VALUE),
    OpInfo("var_mean", forward=POLE, mixes_inf=True, remedy=ONE_VALUE),
    OpInfo("softmax", forward=NORMALISES, has_flat_parts=True),
    OpInfo("_safe_softmax", forward=FINITE, has_flat_parts=True),
    OpInfo("log_softmax", forward=NORMALISES, has_flat_parts=True),
    OpInfo("logsumexp", aliases=("special_logsumexp",), forward=NORMALISES),
    OpInfo("logcumsumexp", forward=NORMALISES),
    OpInfo(
        "scaled_dot_product_attention",
        aliases=(
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
        forward=FINITE,
        mixes_inf=True,
        is_random=True,
        makes=("_safe_softmax", "bmm"),
    ),
    OpInfo("layer_norm", aliases=("native_layer_norm",), forward=FINITE, mixes_inf=True, added_inputs=(2,)),
    OpInfo("group_norm", aliases=("native_group_norm",), forward=FINITE, mixes_inf=True, added_inputs=(2,)),
    OpInfo(
        "batch_norm",
        aliases=("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
        forward=FINITE,
        mixes_inf=True,
        added_inputs=(2,),
        hidden_writes=("running_mean", "running_var"),
        conditional_write=ConditionalWrite("training", (1, 2)),
    ),
    OpInfo(
        "instance_norm", forward=FINITE, mixes_inf=True, conditional_write=ConditionalWrite("use_input_stats", (1, 2))
    ),
    OpInfo("rms_norm", aliases=("fused_rms_norm",), forward=FINITE, mixes_inf=True, makes=("rsqrt", "pow")),
    OpInfo("mse_loss", forward=FINITE, mixes_inf=True, amplifies=True, is_distance=True, is_elementwise_loss=True),
    OpInfo(
        "l1_loss", forward=FINITE, mixes_inf=True, makes=("abs", "mean"), is_distance=True, is_elementwise_loss=True
    ),
    OpInfo("smooth_l1_loss", forward=FINITE, mixes_inf=True, is_distance=True, is_elementwise_loss=True),
    OpInfo("huber_loss", forward=FINITE, mixes_inf=True, is_distance=True, is_elementwise_loss=True),
    OpInfo(
        "nll_loss",
        aliases=("nll_loss_forward", "nll_loss2d", "nll_loss2d_forward", "nll_loss_nd"),
        forward=FINITE,
        remedy="The mean is 0/0 if each target of a batch is ignore_index: skip such a batch, or take the sum and "
        "divide by the number of targets, at least 1.",
    ),
    OpInfo(
        "ctc_loss",
        forward=POLE,
        remedy="CTC needs one frame for each label, and one more for each label that equals the one before: a "
        "sequence with fewer has a loss of Inf. Compare the input lengths, after subsampling, with the target "
        "lengths, and leave such sequences out or pass zero_infinity=True.",
    ),
    OpInfo("binary_cross_entropy", forward=FINITE, singular_at=ZERO),
    OpInfo("poisson_nll_loss", is_elementwise_loss=True),
    OpInfo("kl_div", is_elementwise_loss=True),
    OpInfo("soft_margin_loss", is_elementwise_loss=True),
    OpInfo("grid_sample", aliases=("grid_sampler_2d", "grid_sampler_3d"), forward=FINITE, has_flat_parts=True),
)

#: Matrix decompositions and inverses.
DECOMPOSITIONS: tuple[OpInfo, ...] = (
    OpInfo("linalg_eigh", aliases=("eigh", "linalg_eigvalsh"), forward=FINITE, singular_at=GAPS),
    OpInfo("linalg_eig", aliases=("eig", "linalg_eigvals"), singular_at=GAPS),
    OpInfo("linalg_svd", aliases=("svd", "linalg_svdvals"), forward=FINITE, singular_at=GAPS),
    OpInfo("linalg_qr", aliases=("qr",), forward=FINITE, singular_at=ZERO),
    OpInfo("linalg_lstsq", aliases=("lstsq",), forward=FINITE),
    OpInfo("linalg_pinv", aliases=("pinverse", "pinv"), forward=FINITE),
    OpInfo("linalg_inv", aliases=("inv", "inverse", "linalg_inv_ex"), forward=POLE),
    OpInfo("linalg_solve", aliases=("solve", "linalg_solve_ex"), forward=POLE),
    OpInfo("linalg_cholesky", aliases=("cholesky", "linalg_cholesky_ex"), forward=FINITE, singular_at=EDGES),
    OpInfo("linalg_det", aliases=("det",), forward=FINITE),
    _pole("linalg_slogdet", aliases=("slogdet",)),
    _pole("logdet", makes=("linalg_slogdet",)),
)

#: Comparisons, element by element.
COMPARISONS: tuple[OpInfo, ...] = (
    OpInfo("gt", sign=">"),
    OpInfo("ge", sign=">="),
    OpInfo("lt", sign="<"),
    OpInfo("le", sign="<="),
    OpInfo("eq", sign="=="),
    OpInfo("ne", sign="!="),
)

#: Operators that create a tensor, and those that read the values of one into Python.
SOURCES: tuple[OpInfo, ...] = (
    OpInfo(
        "empty",
        aliases=("empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"),
        creates=True,
        is_uninitialised=True,
    ),
    OpInfo("arange", forward=FINITE, creates=True),
    OpInfo("linspace", forward=FINITE, creates=True),
    OpInfo("logspace", creates=True),
    OpInfo("eye", forward=FINITE, creates=True),
    OpInfo(
        "tensor",
        aliases=("as_tensor", "asarray", "new_tensor", "scalar_tensor"),
        creates=True,
        takes_python_values=True,
    ),
    _random_source("rand", aliases=("rand_like",)),
    _random_source("randn", aliases=("randn_like",)),
    _random_source("randint", aliases=("randint_like",)),
    _random_source("randperm"),
    OpInfo("item", aliases=("__float__", "__int__", "__bool__", "__index__"), reads_values=True),
    OpInfo("tolist", reads_values=True),
    OpInfo("numpy", aliases=("__array__",), reads_values=True),
)

#: Operators that draw random numbers.
RANDOM: tuple[OpInfo, ...] = (
    _draw("normal", aliases=("normal_functional", "log_normal")),
    _draw("uniform"),
    _draw("random"),
    _draw("exponential"),
    _draw("geometric"),
    _draw("cauchy"),
    _draw("bernoulli"),
    OpInfo("multinomial", is_random=True),
    OpInfo("poisson", zero_derivative=True, is_random=True),
    OpInfo("binomial", is_random=True),
    OpInfo("standard_gamma", is_random=True),
    OpInfo("sample_dirichlet", is_random=True),
    _dropout("dropout", aliases=("native_dropout", "fused_dropout"), makes=("mul",)),
    _dropout("dropout1d", aliases=("dropout2d", "dropout3d", "feature_dropout")),
    _dropout("alpha_dropout", makes=("mul", "add")),
    _dropout("feature_alpha_dropout"),
    _move("fractional_max_pool2d", is_random=True),
    _move("fractional_max_pool3d", is_random=True),
    OpInfo("gumbel_softmax", is_random=True, makes=("softmax",)),
    OpInfo("lstm", is_random=True),
    OpInfo("gru", is_random=True),
    OpInfo("rnn_tanh", is_random=True),
    OpInfo("rnn_relu", is_random=True),
)

ROWS: tuple[OpInfo, ...] = (
    *VIEWS,
    *MOVES,
    *FILLS,
    *ARITHMETIC,
    *ACTIVATIONS,
    *NORMS,
    *DECOMPOSITIONS,
    *COMPARISONS,
    *SOURCES,
    *RANDOM,
)
