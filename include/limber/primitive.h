// limber/primitive.h -- primitives: operators without a model.
//
// A primitive is one operator, optionally followed by post-operations, prepared
// for the shapes in its descriptor. It runs on the same kernels as models do.
// Creating a primitive never compiles; better kernels follow in the background.
// docs/primitives.md says which descriptor fields each kind reads and which
// dims may be runtime dims. A field that a kind does not read must be zero; the
// error names the field.
//
// This header is part of limber/limber.h, which includes it.
#ifndef LIMBER_PRIMITIVE_H
#define LIMBER_PRIMITIVE_H

#include <limber/limber.h>

#ifdef __cplusplus
extern "C" {
#endif

// A dim whose size is given at execution. Each runtime dim is independent of
// the others; in an operand of a post-operation it is the result's dim on that
// axis.
#define LIMBER_RUNTIME_DIM INT64_MIN

#define LIMBER_MAX_OPERANDS 8
#define LIMBER_MAX_POST_OPS 8
#define LIMBER_MAX_SPATIAL 3  // spatial axes, besides batch and channels

// The kinds of primitives, each with its operands in order.
typedef enum limber_primitive_kind {
  LIMBER_MATMUL = 1,     // a, b, bias
  LIMBER_CONVOLUTION,    // src, weights, bias
  LIMBER_ELTWISE,        // src
  LIMBER_BINARY,         // a, b
  LIMBER_REDUCTION,      // src
  LIMBER_SOFTMAX,        // src
  LIMBER_NORMALIZATION,  // src, scale, shift, mean, variance
  LIMBER_POOLING,        // src
  LIMBER_REORDER,        // src
  LIMBER_CONCAT,         // up to LIMBER_MAX_OPERANDS
  LIMBER_RESAMPLING,     // src
  LIMBER_RECURRENT,  // src, weights, recurrence, bias, lengths, hidden, cell
  LIMBER_ATTENTION,  // query, key, value, mask
  LIMBER_PRIMITIVE_KINDS,
} limber_primitive_kind;

// The operator, among those of a kind. Each computes what ONNX specifies for
// the operator of the same name.
typedef enum limber_alg {
  // Convolution: direct. Softmax: softmax. Other kinds with several operators:
  // an error.
  LIMBER_ALG_DEFAULT,
  // convolution
  LIMBER_ALG_DIRECT,
  LIMBER_ALG_TRANSPOSED,
  // eltwise, and post-operations
  LIMBER_ALG_ABS,
  LIMBER_ALG_CEIL,
  LIMBER_ALG_CLIP,  // clamps to [alpha, beta]
  LIMBER_ALG_COS,
  LIMBER_ALG_ELU,  // alpha
  LIMBER_ALG_ERF,
  LIMBER_ALG_EXP,
  LIMBER_ALG_FLOOR,
  LIMBER_ALG_GELU,
  LIMBER_ALG_GELU_TANH,
  LIMBER_ALG_HARD_SIGMOID,  // alpha, beta
  LIMBER_ALG_HARD_SWISH,
  LIMBER_ALG_LEAKY_RELU,  // alpha
  LIMBER_ALG_LINEAR,      // alpha * x + beta
  LIMBER_ALG_LOG,
  LIMBER_ALG_MISH,
  LIMBER_ALG_NEG,
  LIMBER_ALG_RECIPROCAL,
  LIMBER_ALG_RELU,
  LIMBER_ALG_ROUND,
  LIMBER_ALG_SIGMOID,
  LIMBER_ALG_SIGN,
  LIMBER_ALG_SILU,
  LIMBER_ALG_SIN,
  LIMBER_ALG_SOFTPLUS,
  LIMBER_ALG_SOFTSIGN,
  LIMBER_ALG_SQRT,
  LIMBER_ALG_SQUARE,
  LIMBER_ALG_TANH,
  // binary, and post-operations
  LIMBER_ALG_ADD,
  LIMBER_ALG_SUB,
  LIMBER_ALG_MUL,
  LIMBER_ALG_DIV,
  LIMBER_ALG_MAX,
  LIMBER_ALG_MIN,
  LIMBER_ALG_POW,
  LIMBER_ALG_PRELU,
  // binary only, not in post-operations: the result is bool
  LIMBER_ALG_EQUAL,
  LIMBER_ALG_GREATER,
  LIMBER_ALG_GREATER_EQUAL,
  LIMBER_ALG_LESS,
  LIMBER_ALG_LESS_EQUAL,
  // reduction
  LIMBER_ALG_REDUCE_SUM,
  LIMBER_ALG_REDUCE_MEAN,
  LIMBER_ALG_REDUCE_MAX,
  LIMBER_ALG_REDUCE_MIN,
  LIMBER_ALG_REDUCE_PROD,
  LIMBER_ALG_REDUCE_L1,
  LIMBER_ALG_REDUCE_L2,
  LIMBER_ALG_REDUCE_SQUARES,
  LIMBER_ALG_REDUCE_LOG_SUM_EXP,
  // softmax
  LIMBER_ALG_SOFTMAX,
  LIMBER_ALG_LOG_SOFTMAX,
  // normalization
  LIMBER_ALG_LAYER_NORM,
  LIMBER_ALG_RMS_NORM,
  LIMBER_ALG_BATCH_NORM,
  LIMBER_ALG_INSTANCE_NORM,
  LIMBER_ALG_GROUP_NORM,
  // pooling
  LIMBER_ALG_POOL_MAX,
  LIMBER_ALG_POOL_AVERAGE,         // padding is not counted
  LIMBER_ALG_POOL_AVERAGE_PADDED,  // padding is counted as zeros
  LIMBER_ALG_POOL_GLOBAL_MAX,
  LIMBER_ALG_POOL_GLOBAL_AVERAGE,
  // resampling
  LIMBER_ALG_NEAREST,
  LIMBER_ALG_BILINEAR,
  LIMBER_ALG_CUBIC,
  // recurrent
  LIMBER_ALG_LSTM,
  LIMBER_ALG_GRU,
  LIMBER_ALG_RNN_TANH,
  LIMBER_ALG_RNN_RELU,
  LIMBER_ALGS,
} limber_alg;

// Return the name of a kind ("matmul") and of an alg ("leaky_relu"; the names
// above in lower case), or NULL if the number is not one.
LIMBER_API const char *limber_primitive_kind_name(int kind);
LIMBER_API const char *limber_alg_name(int alg);
// Returns the kind of an alg; 0 for LIMBER_ALG_DEFAULT and for unknown numbers.
LIMBER_API int limber_alg_kind(int alg);

// The memory layout of a tensor. Dims are always in ONNX order, [batch,
// channels, spatial...], whatever the layout.
typedef enum limber_layout {
  LIMBER_LAYOUT_DEFAULT,        // row-major; for a result: as operand 0
  LIMBER_LAYOUT_ROW_MAJOR,      // in the order of dims (NCHW)
  LIMBER_LAYOUT_CHANNELS_LAST,  // [batch, spatial..., channels] (NHWC); the
                                // rank is at least 3
} limber_layout;

// An operand of a primitive or of a post-operation.
typedef struct limber_operand {
  int32_t dtype;                  // limber_dtype; LIMBER_NONE: absent
  int32_t layout;                 // limber_layout
  int32_t rank;                   // the number of dims
  int32_t reserved;               // must be 0
  int64_t dims[LIMBER_MAX_RANK];  // numbers, or LIMBER_RUNTIME_DIM
  // The elements of a constant operand, such as weights. They are read when the
  // primitive is created, and packed for kernels once. NULL: the operand is
  // given at each execution.
  const void *data;
} limber_operand;

// What a primitive computes.
typedef struct limber_primitive_desc {
  size_t size;                             // sizeof this struct
  int32_t kind, alg;                       // limber_primitive_kind, limber_alg
  limber_operand in[LIMBER_MAX_OPERANDS];  // in the order the kind lists them
  int32_t out_dtype;                       // reorder: of the result; 0: as src
  int32_t out_layout;                      // limber_layout of the result
  // Softmax, concat, layer and RMS norm; -1: the last axis.
  int32_t axis;
  int32_t n_axes;  // number of `axes`; 0: reduction over all axes, or a reorder
                   // that does not permute
  int32_t axes[LIMBER_MAX_RANK];  // reduction: the reduced axes; reorder: axis
                                  // i of the result is axis axes[i] of src
  int32_t keep_dims;              // reduction: 1: reduced axes stay, with dim 1
  int32_t transpose;    // matmul: the last two axes of 1: a, 2: b, 3: both
  int32_t ceil_mode;    // pooling: 1: round the output size up
  int32_t direction;    // recurrent: 0 forward, 1 reverse, 2 bidirectional
  int32_t reset_after;  // GRU: 1: apply the reset gate after the matmul (ONNX
                        // linear_before_reset)
  float epsilon;        // normalization; 0: 1e-5
  float alpha, beta;    // eltwise; attention: alpha is the scale of the scores,
                        // 0: 1 / sqrt(head size)
  float factors[LIMBER_MAX_SPATIAL];   // resampling: scale of each spatial axis
  int32_t causal;                      // attention: 1: query i attends only to
                                       // keys 0 to i
  int64_t sizes[LIMBER_MAX_SPATIAL];   // resampling: spatial dims of the
                                       // result, in place of `factors`
  int64_t kernel[LIMBER_MAX_SPATIAL];  // pooling: dims of the window
  int64_t strides[LIMBER_MAX_SPATIAL];    // 0: 1
  int64_t dilations[LIMBER_MAX_SPATIAL];  // 0: 1
  int64_t pads[2 * LIMBER_MAX_SPATIAL];   // at the start of each spatial axis,
                                          // then at the end of each
  int64_t output_pads[LIMBER_MAX_SPATIAL];  // transposed convolution
  int64_t groups;                           // convolution, group norm; 0: 1
} limber_primitive_desc;

// The attributes of a primitive: its post-operations and how it is computed.
// Where a function takes attributes, NULL stands for attributes with nothing
// set. They are copied when a primitive is created.
typedef struct limber_attr limber_attr;
LIMBER_API limber_status limber_attr_create(limber_attr **out);
LIMBER_API void limber_attr_destroy(limber_attr *attr);

// Append a post-operation. Post-operations are applied to the result in the
// order in which they were appended. Their operands that are not constant are
// given at execution, after those of the descriptor.
LIMBER_API limber_status limber_attr_append_eltwise(limber_attr *attr, int alg,
                                                    float alpha, float beta);
LIMBER_API limber_status limber_attr_append_binary(
    limber_attr *attr, int alg, const limber_operand *operand);
// Adds scale times an operand with the dtype, dims and layout of the result.
// That operand may be the memory of the result itself.
LIMBER_API limber_status limber_attr_append_sum(limber_attr *attr, float scale);

// 1: results are bitwise identical whichever kernels compute them. 0: as the
// runtime is set.
LIMBER_API limber_status limber_attr_set_deterministic(limber_attr *attr,
                                                       int on);
// 1: each execution supplies the memory for intermediate values in its options;
// limber_primitive_query returns how much is needed. 0: the primitive keeps
// such memory itself.
LIMBER_API limber_status limber_attr_set_user_scratch(limber_attr *attr,
                                                      int on);
// 1: use kernels that serve every shape where they exist, in place of faster
// ones that serve only some shapes. 0: use the faster ones. The attribute takes
// precedence over the environment and over the build option. If it was never
// set, the getter returns 0.
LIMBER_API limber_status
limber_attr_set_hint_reusable_kernels(limber_attr *attr, int on);
LIMBER_API limber_status
limber_attr_get_hint_reusable_kernels(const limber_attr *attr, int *out);
// 1: compute on the reference implementation in plain C, one operator at a
// time, to compare results with.
LIMBER_API limber_status limber_attr_set_reference(limber_attr *attr, int on);

typedef struct limber_primitive limber_primitive;

// Creates a primitive. It returns at once, with the best kernels available.
// Primitives with equal descriptors and attributes share one implementation in
// the process, whichever runtime creates them, and the process caches it. The
// handle belongs to the caller. It executes on the threads of its runtime and
// allocates results with that runtime's allocator, so it must be destroyed
// before the runtime.
LIMBER_API limber_status limber_primitive_create(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, limber_primitive **out);
LIMBER_API void limber_primitive_destroy(limber_primitive *primitive);

// Compiles the kernels that the primitive's plans still need, and waits for
// them: for the shape of the descriptor or, with runtime dims, for the shapes
// that were executed or queried. Returns LIMBER_CANCELLED if `seconds` did not
// suffice.
LIMBER_API limber_status limber_primitive_wait(limber_primitive *primitive,
                                               double seconds);

// Executes the primitive. It never compiles and never waits for a compiler, and
// any number of threads may call it at once. Inputs are the operands that are
// not constant, in the order of the descriptor, followed by those of
// post-operations. They are matched by position, and their dims supply the
// runtime dims. Outputs and options are as in limber_session_run; names are
// ignored.
LIMBER_API limber_status limber_primitive_execute(
    limber_primitive *primitive, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs,
    const limber_run_options *options);

typedef struct limber_primitive_info {
  size_t size;  // sizeof this struct, set by the caller
  // Descriptor and attributes as text; equal ones have equal keys.
  const char *key;
  // How it is computed, with one line for each step: tier, operator, kernel.
  const char *implementation;
  const char *tier;  // the slowest tier of its steps: "reference", "pack", ...
  int reusable;  // 1: all its kernels serve other shapes too; 0: one does not
  int prefer_reusable;               // 1: reusable kernels are preferred
  const char *prefer_reusable_from;  // the source of that setting: "attribute",
                                     // "environment" or "build"
  size_t n_inputs, n_outputs;        // of an execution
  limber_layout in_layouts[LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS];
  limber_layout out_layout;
  uint64_t steps, kernels;  // as in limber_plan_info
  uint64_t scratch_bytes;   // bytes for intermediate values
  uint64_t packed_bytes;    // bytes of weights packed for kernels
} limber_primitive_info;

// Describes a primitive. `inputs` (dtype, rank and dims) are needed if it has
// runtime dims; otherwise they may be NULL. The strings belong to this thread
// and are valid until its next query.
LIMBER_API limber_status limber_primitive_query(limber_primitive *primitive,
                                                const limber_tensor *inputs,
                                                size_t n_inputs,
                                                limber_primitive_info *out);

// -- cache blobs --------------------------------------------------------------
// A cache blob is a primitive and its compiled kernels as bytes, which a
// program can store wherever it likes. A primitive created from a blob has its
// kernels at once and needs no compiler. A blob contains machine code: accept
// one only from a source that may run code in this process.

// Returns the key to store a blob under: 32 hexadecimal digits and a NUL. It is
// the same for equal primitives of equal library versions, on processors whose
// instruction sets are the same for kernels.
#define LIMBER_CACHE_ID 33
LIMBER_API limber_status limber_primitive_get_cache_id(
    const limber_primitive *primitive, char out[LIMBER_CACHE_ID]);
// Returns a blob. Kernels are read from the store on disk; those that it does
// not have are compiled again, within `seconds`. The caller frees *out with
// limber_blob_free.
LIMBER_API limber_status limber_primitive_get_cache_blob(
    limber_primitive *primitive, double seconds, void **out, size_t *size);
LIMBER_API void limber_blob_free(void *blob);
// Creates a primitive from a blob. Returns LIMBER_UNSUPPORTED if another
// version of the library wrote the blob or if this machine does not have the
// instructions that its kernels use, and LIMBER_INVALID if the blob is corrupt
// or belongs to another descriptor. In these cases create the primitive without
// the blob.
LIMBER_API limber_status limber_primitive_create_from_cache_blob(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, const void *blob, size_t size,
    limber_primitive **out);

#ifdef __cplusplus
}
#endif

#endif
