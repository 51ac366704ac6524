// limber/primitive.h -- primitives: operators without a model.
//
// A primitive is one operator, with operators that follow it, made ready for
// the shapes its descriptor states. It runs on the same kernels as models do:
// creating one never compiles, better kernels come later. What each kind reads
// of a descriptor, and which dims may be runtime dims, is in
// docs/primitives.md; a field that the kind does not read must be zero, and
// errors name the field.
//
// Part of limber/limber.h, which includes it.
#ifndef LIMBER_PRIMITIVE_H
#define LIMBER_PRIMITIVE_H

#include <limber/limber.h>

#ifdef __cplusplus
extern "C" {
#endif

// A dim that is given at execution. Each stands for itself; in an operand of a
// post-operation it is the dim of the result at that place.
#define LIMBER_RUNTIME_DIM INT64_MIN

#define LIMBER_MAX_OPERANDS 8
#define LIMBER_MAX_POST_OPS 8
#define LIMBER_MAX_SPATIAL 3  // axes of an image besides batch and channels

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

// Which operator of the kind. They mean what ONNX says of the operators they
// are named after.
typedef enum limber_alg {
  LIMBER_ALG_DEFAULT,  // direct; softmax; else an error where there are several
  // convolution
  LIMBER_ALG_DIRECT,
  LIMBER_ALG_TRANSPOSED,
  // eltwise, and post-operations
  LIMBER_ALG_ABS,
  LIMBER_ALG_CEIL,
  LIMBER_ALG_CLIP,  // to alpha and beta
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
  // binary alone: these make bools
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
  LIMBER_ALG_POOL_AVERAGE,  // of the elements that are there
  LIMBER_ALG_POOL_AVERAGE_PADDED,
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

// "matmul", "leaky_relu"; NULL: there is none. Names of algs are those above.
LIMBER_API const char *limber_primitive_kind_name(int kind);
LIMBER_API const char *limber_alg_name(int alg);
LIMBER_API int limber_alg_kind(int alg);  // 0: none, or of every kind

// Dims are in the order of ONNX, [batch, channels, space...], whichever way the
// elements lie in memory.
typedef enum limber_layout {
  LIMBER_LAYOUT_DEFAULT,        // row-major; of a result: as operand 0 lies
  LIMBER_LAYOUT_ROW_MAJOR,      // in the order of dims
  LIMBER_LAYOUT_CHANNELS_LAST,  // [batch, space..., channels]; rank 3 and more
} limber_layout;

typedef struct limber_operand {
  int32_t dtype;   // limber_dtype; LIMBER_NONE: absent
  int32_t layout;  // limber_layout
  int32_t rank;
  int32_t reserved;  // must be 0
  int64_t dims[LIMBER_MAX_RANK];
  // Elements that never change (weights): read while creating, and laid out for
  // kernels once. NULL: given at each execution.
  const void *data;
} limber_operand;

typedef struct limber_primitive_desc {
  size_t size;  // sizeof this struct
  int32_t kind, alg;
  limber_operand in[LIMBER_MAX_OPERANDS];  // as the kind says, in that order
  int32_t out_dtype;                       // reorder: of the result; 0: as src
  int32_t out_layout;                      // limber_layout of the result
  int32_t axis;    // of softmax, concat, layer and rms norm; -1: the last
  int32_t n_axes;  // reduction: 0 is all; reorder: 0 is the order as is
  int32_t axes[LIMBER_MAX_RANK];  // reduced; or axis i of the result is axes[i]
  int32_t keep_dims;              // reduction: 1: reduced axes stay, with dim 1
  int32_t transpose;              // matmul: 1: a, 2: b, 3: both; last two axes
  int32_t ceil_mode;              // pooling: 1: a window may reach beyond
  int32_t direction;              // recurrent: 0 forward, 1 reverse, 2 both
  int32_t reset_after;            // gru: 1: the product comes before the reset
  float epsilon;                  // of norms; 0: 1e-5
  float alpha, beta;  // of eltwise; attention: alpha is the scale of
                      // scores, 0: 1 / sqrt(size of a head)
  float factors[LIMBER_MAX_SPATIAL];  // resampling: of each axis of space ...
  int32_t causal;  // attention: 1: query i sees keys 0 to i alone
  int64_t sizes[LIMBER_MAX_SPATIAL];        // ... or what they become
  int64_t kernel[LIMBER_MAX_SPATIAL];       // pooling: dims of the window
  int64_t strides[LIMBER_MAX_SPATIAL];      // 0: 1
  int64_t dilations[LIMBER_MAX_SPATIAL];    // 0: 1
  int64_t pads[2 * LIMBER_MAX_SPATIAL];     // before each axis, then after each
  int64_t output_pads[LIMBER_MAX_SPATIAL];  // transposed convolution
  int64_t groups;                           // convolution, group norm; 0: 1
} limber_primitive_desc;

// What holds for the operator as a whole, and what follows it. NULL stands for
// one in which nothing was set. Copied when a primitive is created.
typedef struct limber_attr limber_attr;
LIMBER_API limber_status limber_attr_create(limber_attr **out);
LIMBER_API void limber_attr_destroy(limber_attr *attr);

// Applied to the result in the order in which they were appended. Operands that
// are not constant are given at execution, after those of the descriptor.
LIMBER_API limber_status limber_attr_append_eltwise(limber_attr *attr, int alg,
                                                    float alpha, float beta);
LIMBER_API limber_status limber_attr_append_binary(
    limber_attr *attr, int alg, const limber_operand *operand);
// Adds scale times an operand of the result's dtype, dims and layout, which may
// be the very memory of the result.
LIMBER_API limber_status limber_attr_append_sum(limber_attr *attr, float scale);

// 1: the same bits whichever kernels compute them; 0: as the runtime is.
LIMBER_API limber_status limber_attr_set_deterministic(limber_attr *attr,
                                                       int on);
// 1: an execution brings the memory for values between steps, in its options;
// limber_primitive_query says how much. 0: the primitive keeps some.
LIMBER_API limber_status limber_attr_set_user_scratch(limber_attr *attr,
                                                      int on);
// 1: kernels that serve every shape are taken where there are such, in place of
// faster ones for some; 0: the faster ones. What is set here goes before the
// option of the environment and that of the build. Not set, it reads as 0.
LIMBER_API limber_status
limber_attr_set_hint_reusable_kernels(limber_attr *attr, int on);
LIMBER_API limber_status
limber_attr_get_hint_reusable_kernels(const limber_attr *attr, int *out);
// 1: plain C, operator by operator: what results are compared with.
LIMBER_API limber_status limber_attr_set_reference(limber_attr *attr, int on);

typedef struct limber_primitive limber_primitive;

// Returns at once, with the best kernels there are. Equal descriptors and
// attributes share what is made, whichever runtime asks; it is remembered, by
// the process. The handle is the caller's and executes on its runtime's
// threads, results are from that runtime's allocator: it is destroyed before
// the runtime.
LIMBER_API limber_status limber_primitive_create(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, limber_primitive **out);
LIMBER_API void limber_primitive_destroy(limber_primitive *primitive);

// Compiles what its plans still lack, and waits for it, as its name says: for
// the shape of the descriptor, or where that has runtime dims for those that
// were executed or queried. LIMBER_CANCELLED when `seconds` did not suffice.
LIMBER_API limber_status limber_primitive_wait(limber_primitive *primitive,
                                               double seconds);

// Inputs are the operands that are not constant, in the order of the
// descriptor, then those of post-operations; they are found by position, and
// dims stand for runtime dims. Outputs and options are as in
// limber_session_run; names are not read. Never compiles, never waits for a
// compiler; any number of threads at once.
LIMBER_API limber_status limber_primitive_execute(
    limber_primitive *primitive, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs,
    const limber_run_options *options);

typedef struct limber_primitive_info {
  size_t size;  // sizeof this struct, set by the caller
  // Readable, and the same for equal descriptors and attributes.
  const char *key;
  // What computes it, a line for each step: tier, operator, kernel.
  const char *implementation;
  const char *tier;  // the worst of its steps: "reference", "pack", ...
  int reusable;      // 1: its kernels serve other shapes too; 0: one does not
  int prefer_reusable;  // whether such are preferred, and who says so:
  const char *prefer_reusable_from;  // "attribute", "environment" or "build"
  size_t n_inputs, n_outputs;
  limber_layout in_layouts[LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS];
  limber_layout out_layout;
  uint64_t steps, kernels;  // as in limber_plan_info
  uint64_t scratch_bytes;   // for values between steps
  uint64_t packed_bytes;    // of weights, laid out for kernels
} limber_primitive_info;

// `inputs` are needed (dtype, rank and dims) where there are runtime dims, else
// they may be NULL. Texts are this thread's, until its next query.
LIMBER_API limber_status limber_primitive_query(limber_primitive *primitive,
                                                const limber_tensor *inputs,
                                                size_t n_inputs,
                                                limber_primitive_info *out);

// A primitive and the kernels that were compiled for it, as bytes that a
// program keeps where it likes: created from these it is where it was, and
// needs no compiler. They are machine code: take them from nobody who may not
// run code in this process.

// 32 hex digits, the same for equal primitives of equal libraries on processors
// that kernels use in the same way: what to keep a blob under.
#define LIMBER_CACHE_ID 33
LIMBER_API limber_status limber_primitive_get_cache_id(
    const limber_primitive *primitive, char out[LIMBER_CACHE_ID]);
// Reads the kernels from disk. What is not there is compiled again, in
// `seconds` at the most. Freed with limber_blob_free.
LIMBER_API limber_status limber_primitive_get_cache_blob(
    limber_primitive *primitive, double seconds, void **out, size_t *size);
LIMBER_API void limber_blob_free(void *blob);
// What does not fit is refused, and the error says why: LIMBER_UNSUPPORTED if
// another version of the library made it or this machine lacks what its kernels
// use, LIMBER_INVALID if it is damaged or of another descriptor. Then create
// the primitive without it.
LIMBER_API limber_status limber_primitive_create_from_cache_blob(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, const void *blob, size_t size,
    limber_primitive **out);

#ifdef __cplusplus
}
#endif

#endif
