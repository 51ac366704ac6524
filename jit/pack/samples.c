// pack/samples.c -- Small graphs whose specs are in the pack.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/infer.h"
#include "pack/list.h"
#include "partition/recurrent.h"
#include "partition/weights.h"

enum { ROWS = 5, COLS = 0, MAX_TEXT = 256, MAX_OPS = 9, MAX_LIST = 4 };

// The values of COLS, one after the other: weights with few columns and an even
// K are K2-interleaved.
static const int64_t widths[] = {21, 24};

#define COUNT(array) (sizeof(array) / sizeof *(array))

// -- one sample --------------------------------------------------------------

static const char strided[] = "strided";  // the name of strided operands

// Operands by their letters: parameters, or constants of zeros.
static const struct {
  char letter;
  bool is_const;
  const char *name;
  int rank;
  int64_t dims[4];
} values[] = {
    {'x', false, "x", 2, {ROWS, COLS}},
    {'f', false, "f", 2, {ROWS, COLS}},
    {'t', false, strided, 2, {ROWS, COLS}},
    {'c', false, "c", 1, {COLS}},
    {'r', false, "r", 2, {ROWS, 1}},
    {'o', false, "o", 1, {1}},
    {'v', false, "v", 2, {COLS, COLS}},
    {'u', false, strided, 2, {COLS, COLS}},
    {'h', false, "h", 4, {2, 3, ROWS, 8}},
    {'m', false, "m", 4, {2, 1, ROWS, ROWS}},
    {'n', false, "n", 4, {2, 1, 1, ROWS}},
    {'p', false, "p", 4, {1, 1, ROWS, COLS}},
    {'s', false, "lstm", 3, {ROWS, 2, 4}},
    {'e', false, "gru", 3, {ROWS, 2, 3}},
    {'l', false, "rnn", 3, {ROWS, 2, 1}},
    {'w', true, "w", 2, {COLS, COLS}},
    {'k', true, "k", 4, {COLS, COLS, 1, 1}},
    {'d', true, "d", 4, {COLS, 1, 1, 1}},
    {'q', true, "lstm", 3, {1, 4, 1}},
    {'g', true, "gru", 3, {1, 3, 1}},
    {'j', true, "rnn", 3, {1, 1, 1}},
};

typedef struct sample {
  lb_graph *g;
  lb_dtype dtype;
  int64_t cols;
  // by letter and digit; NULL: not used yet
  lb_value *shared[COUNT(values)][10];
  lb_value *results[MAX_OPS];  // of the operators, in order
  int n_results;
  lb_partitioning parts;
  lb_weights weights;
} sample;

static int64_t dim_of(const sample *s, size_t kind, int i) {
  return values[kind].dims[i] == COLS ? s->cols : values[kind].dims[i];
}

static lb_status new_param(sample *s, size_t kind, lb_dtype t, lb_value **out) {
  LB_TRY(lb_value_new(s->g, values[kind].name, out));
  (*out)->info.dtype = t;
  (*out)->info.rank = values[kind].rank;
  for (int i = 0; i < values[kind].rank; i++)
    (*out)->info.dims[i] = lb_dim_const(dim_of(s, kind, i));
  return lb_region_add_param(s->g->main, *out);
}

// A constant of zeros.
static lb_status new_const(sample *s, lb_dtype t, int rank, const int64_t *dims,
                           lb_tensor **out, lb_value **value) {
  lb_tensor *c = *out = lb_arena_new(&s->g->arena, lb_tensor, 1);
  if (!c) return lb_oom();
  c->dtype = t;
  c->rank = rank;
  for (int i = 0; i < rank; i++) c->dims[i] = dims[i];
  lb_tensor_dense(c);
  c->data = lb_arena_zalloc(&s->g->arena, lb_tensor_bytes(c), 64);
  return c->data ? lb_const_new(s->g, "c", c, value) : lb_oom();
}

static lb_status new_number(sample *s, lb_dtype t, double v, lb_value **out) {
  lb_tensor *c;
  LB_TRY(new_const(s, t, 0, NULL, &c, out));
  if (t == LB_F32) *(float *)c->data = (float)v;
  if (t == LB_F64) *(double *)c->data = v;
  if (t == LB_I64) *(int64_t *)c->data = (int64_t)v;
  if (t == LB_I32) *(int32_t *)c->data = (int32_t)v;
  return LB_OK;
}

// A letter with a digit is the same value each time; so is x.
static lb_status letter_operand(sample *s, size_t kind, const char *digit,
                                lb_dtype t, lb_value **out) {
  bool is_shared = isdigit(*digit) || values[kind].letter == 'x';
  lb_value **shared = &s->shared[kind][isdigit(*digit) ? *digit - '0' : 0];
  lb_tensor *c;
  int64_t dims[4];
  *out = is_shared ? *shared : NULL;
  if (*out) return LB_OK;
  for (int i = 0; i < 4; i++) dims[i] = dim_of(s, kind, i);
  if (values[kind].is_const)
    LB_TRY(new_const(s, t, values[kind].rank, dims, &c, out));
  else
    LB_TRY(new_param(s, kind, t, out));
  *shared = *out;
  return LB_OK;
}

// ".": of the previous operator; "$1": of the first one.
static lb_status earlier_result(const sample *s, const char *text,
                                lb_value **out) {
  int i = *text == '.' ? s->n_results - 1 : text[1] - '1';
  if (i < 0 || i >= s->n_results)
    return lb_error(LB_INVALID, "operand '%s': no operator has this result yet",
                    text);
  *out = s->results[i];
  return LB_OK;
}

// "3" or "3x3": at most MAX_LIST integers.
static uint32_t list_of(const char *text, int64_t *out) {
  uint32_t n = 0;
  char *rest;
  do {
    out[n++] = strtoll(text, &rest, 10);
    text = rest + 1;
  } while (n < MAX_LIST && *rest == 'x');
  return n;
}

static lb_dtype dtype_of(const sample *s, char prefix) {
  switch (prefix) {
    case 'b': return LB_BOOL;
    case 'i': return LB_I64;
    case 'I': return LB_I32;
    case 'B': return LB_I8;
    case 'U': return LB_U8;
    default: return s->dtype;
  }
}

static lb_status operand(sample *s, const char *text, lb_value **out) {
  lb_dtype t = dtype_of(s, *text);
  if (strchr("biIBU", *text)) text++;
  if (*text == '.' || *text == '$') return earlier_result(s, text, out);
  if (*text == '_') return *out = NULL, LB_OK;
  for (size_t i = 0; i < COUNT(values); i++)
    if (values[i].letter == *text)
      return letter_operand(s, i, text + 1, t, out);
  if (*text != 'a') return new_number(s, t, atof(text), out);
  int64_t list[MAX_LIST];
  return lb_const_ints(s->g, "list", list, list_of(text + 1, list), out);
}

// "name=value": an integer, several ("3x3"), or a string.
static lb_status set_attr(sample *s, lb_node *n, char *text) {
  int64_t list[MAX_LIST];
  char *value = strchr(text, '=');
  if (!value) return lb_error(LB_INVALID, "attribute '%s' has no value", text);
  *value++ = 0;
  if (!isdigit(*value) && *value != '-')
    return lb_node_set_str(s->g, n, text, value);
  uint32_t count = list_of(value, list);
  return count == 1 ? lb_node_set_int(s->g, n, text, list[0])
                    : lb_node_set_ints(s->g, n, text, list, count);
}

// "Op[name=value,name=value] operand operand".
static lb_status add_node(sample *s, char *text) {
  lb_value *in[8], *out;
  lb_node *n;
  uint32_t n_in = 0;
  char *rest, *op_name = strtok_r(text, " ", &rest);
  char *attr = op_name ? strchr(op_name, '[') : NULL;
  if (attr) *attr++ = 0;
  lb_op op = op_name ? lb_op_find("", op_name) : LB_OP_COUNT;
  if (op == LB_OP_COUNT || s->n_results == MAX_OPS)
    return lb_error(LB_INVALID, "unknown operator '%s', or too many operators",
                    op_name ? op_name : "");
  for (char *p; n_in < 8 && (p = strtok_r(NULL, " ", &rest)); n_in++)
    LB_TRY(operand(s, p, &in[n_in]));
  LB_TRY(lb_node_new(s->g->main, op, op_name, n_in, 1, &n));
  memcpy(n->in, in, n_in * sizeof *in);
  LB_TRY(lb_value_new(s->g, "v", &out));
  out->region = s->g->main;
  lb_node_set_out(n, 0, out);
  s->results[s->n_results++] = out;
  for (char *p = attr ? strtok_r(attr, ",]", &rest) : NULL; p;
       p = strtok_r(NULL, ",]", &rest))
    LB_TRY(set_attr(s, n, p));
  return LB_OK;
}

static lb_status build(sample *s, const char *text) {
  char copy[MAX_TEXT];
  if (strlen(text) >= sizeof copy)
    return lb_error(LB_INVALID, "the sample is too long: %s", text);
  memcpy(copy, text, strlen(text) + 1);
  char *rest;
  for (char *p = strtok_r(copy, ";", &rest); p; p = strtok_r(NULL, ";", &rest))
    LB_TRY(add_node(s, p));
  return lb_region_add_result(s->g->main, s->results[s->n_results - 1]);
}

static lb_status tensor_of(void *user, const lb_value *v, lb_tensor *out) {
  (void)user;
  *out = (lb_tensor){.dtype = v->info.dtype, .rank = v->info.rank};
  for (int i = 0; i < v->info.rank; i++) out->dims[i] = v->info.dims[i].k;
  lb_tensor_dense(out);
  if (strcmp(v->name, strided) == 0) {
    out->strides[0] = 1;
    out->strides[1] = out->dims[0];
  }
  return LB_OK;
}

// Adds the specs of a recurrence, which has several kernels.
static lb_status add_recurrent(const lb_partition *part, lb_pack_list *l,
                               uint32_t lanes) {
  lb_rshape shape = {0};
  lb_rnn_kernel kernel;
  LB_TRY(tensor_of(NULL, part->nodes[0]->in[0], &shape.tensor[LB_RMEM_X]));
  for (int i = 0; i < lb_recurrent_kernels(part); i++) {
    LB_TRY(lb_recurrent_bind(part, &shape, 0, i, &kernel));
    LB_TRY(lb_pack_list_add(l, &kernel.b.spec, lanes));
  }
  return LB_OK;
}

static lb_status add_spec(sample *s, const lb_partition *part, lb_pack_list *l,
                          uint32_t lanes) {
  lb_binding b;
  bool ok;
  if (part->recurrent) return add_recurrent(part, l, lanes);
  LB_TRY(lb_partition_bind(part, tensor_of, s, &b, &ok));
  return ok ? lb_pack_list_add(l, &b.spec, lanes) : LB_OK;
}

// A graph that shape inference rejects is skipped, because all dtypes are
// tried.
static lb_status add_specs(sample *s, lb_pack_list *l, uint32_t lanes) {
  lb_status st = lb_infer_graph(s->g);
  if (lb_status_code(st) == LB_OOM) return st;
  if (lb_failed(st)) return lb_status_drop(st), LB_OK;
  LB_TRY(lb_partitioning_init(&s->parts, s->g, &(lb_partition_options){0},
                              &s->weights));
  for (uint32_t i = 0; i < s->parts.n_parts; i++)
    LB_TRY(add_spec(s, s->parts.parts[i], l, lanes));
  return LB_OK;
}

static lb_status add_sample(lb_pack_list *l, const char *text, lb_dtype t,
                            int64_t cols, uint32_t lanes) {
  sample s = {.dtype = t, .cols = cols};
  LB_TRY(lb_weights_init(&s.weights, lb_device_none()));
  lb_status st = lb_graph_new(&s.g);
  if (!lb_failed(st)) st = build(&s, text);
  if (!lb_failed(st)) st = add_specs(&s, l, lanes);
  if (s.parts.parts) lb_partitioning_fini(&s.parts);
  lb_graph_free(s.g);
  lb_weights_fini(&s.weights);
  return st;
}

lb_status lb_pack_sample(lb_pack_list *l, const char *text, lb_dtype t,
                         uint32_t lanes) {
  for (size_t i = 0; i < COUNT(widths); i++)
    LB_TRY(add_sample(l, text, t, widths[i], lanes));
  return LB_OK;
}

// -- all samples -------------------------------------------------------------

// Every operator is tried with these operands, in these dtypes.
static const char *const operands[] = {
    "x",      "t",       "x f",     "x x",      "x c",      "c x",
    "x r",    "r x",     "x o",     "o x",      "x 2",      "2 x",
    "x t",    "t x",     "r c",     "c r",      "bx f f",   "bx f 2",
    "bx 2 f", "bx f o",  "bx o f",  "br f f",   "br f 2",   "bc f f",
    "bc f 2", "bx 1 2",  "x 2 3",   "x o o",    "x c c",    "t c c",
    "bf bf",  "bf bc",   "bf br",   "br bc",    "bf",       "x w",
    "x v",    "x u",     "t w",     "t v",      "x a-1",    "x a0",
    "t a-1",  "x w c",   "t w c",   "x v c",    "x c c c",  "x c c c c",
    "h h h",  "h h h m", "h h h n", "h h h bm", "h h h bn",
};
static const lb_dtype dtypes[] = {LB_F32, LB_I64, LB_I32, LB_F64, LB_F16};

// Common chains of models, in float32. Equal numbers are one scalar.
static const char *const chains[] = {
    "MatMul x w; Add . c; Add . t",
    "MatMul x w; Add . f",
    "MatMul x w; Add . 2",
    "MatMul x w; Add . 2; Sigmoid .",
    "MatMul x w; Add . c; Mul . 2",
    "MatMul t w; Add . c",
    "MatMul t w; Add . c; Add . f",
    "MatMul x v; Add . c",
    "MatMul x v; Add . f",
    "MatMul x v; Mul . 2; Add . f",
    "MatMul x u; Mul . 2",
    "MatMul x u; Mul . 2; Add . f",
    "Conv[channels_last=1] p k",
    "Conv[channels_last=1] p k; Add . f",
    "Conv[channels_last=1] p k; Add . 2",
    "Conv[channels_last=1] p k; Add . 2; Sigmoid .",
    "Conv[channels_last=1,group=21] p d",
    "MaxPool[channels_last=1,kernel_shape=1x1] p",
    "AveragePool[channels_last=1,kernel_shape=1x1] p",
    "Add x f; LayerNormalization . c c",
    "Add x c; LayerNormalization . c c",
    "Add x f; Add . f; LayerNormalization . c c",
    "Add x f; Add . c; LayerNormalization . c c",
    "Add x f; RMSNormalization . c",
    "Mul x f; Add . c",
    "Mul x c; Add . c",
    "Mul x c; Add . x",
    "Mul x c; Add . f",
    "Mul x r; Add . r",
    "Mul x 2; Add . 3",
    "Mul x 2; Add . f",
    "Add x f; Add . f",
    "Sub x f; Mul . f",
    "Sub x f; Div . f",
    "Add x f; Mul . f",
    "Mul x f; Mul . f",
    "Mul x f; Add . f",
    "Div x 2; Add . f",
    "Sub 2 x; Mul . 3",
    "Div x 2; Softmax .",
    "Mul x 2; Softmax .",
    "Add x f; Softmax .",
    "Add x c; Softmax .",
    "Mul x 2; Add . f; Softmax .",
    "Mul x 2; Add . c; Softmax .",
    "MatMul t v; Mul . 2",
    "Add x 2; Sqrt .; Reciprocal .",
    "Add r 2; Sqrt .; Reciprocal .",
    "Add x 2; Sqrt .; Div 1 .",
    "Add r 2; Sqrt .; Div 1 .",
    "Sub x r; Exp .",
    "Sub x r; Mul . r",
    "Sub x r; Mul . r; Mul . c; Add . c",
    "Mul r c; Sub x r; Mul . $1; Add . c",
    "Mul c r; Sub x c; Mul . $1; Add . r",
    "Sub x r; Mul r c; Mul $1 .; Add . c",
    "Sub x c; Mul c r; Mul $1 .; Add . r",
    "Sub x r; Div . r; Mul . c; Add . c",
    "ReduceSum x a-1; Mul . 2",
    "ReduceSum x a0; Mul . 2",
    "ReduceSum x a-1; Div . 2",
    "ReduceMax x a-1; Max 2 .",
    "Mul x x; ReduceSum . a-1",
    "Mul x x; ReduceSum . a-1; Mul . 2",
    "Mul x x; ReduceSum . a-1; Mul . 2; Mul r1 r1; Sub $3 .; Max 3 .",
    "ReduceSum x a0; Mul . 2; Mul c1 c1; Sub $2 .; Max 3 .",
    "Mul x x; ReduceMean . a-1",
    "Mul x x; ReduceMean . a-1; Add . 2; Sqrt .",
    "Sub x r; Mul . $1; ReduceMean . a-1",
    "Sub x r; Pow . 2; ReduceMean . a-1",
    "Mul x x; Mul f1 f1; Add $1 .; Sqrt .",
    "Mul t1 t1; Mul t2 t2; Add $1 .; Sqrt .",
    "LessOrEqual i2 ix; And . b1",
    "And br bc; Where . 1 2",
    "And bx bf; Where . 1 2",
    "Cast[to=1] ix; Sub 2 .; Mul . 3",
    "Cast[to=1] bx; Sub 2 .; Mul . 3",
};

// Each follows its usual producers in models.
static const char *const activations[] = {
    "Relu .",    "Gelu .",      "Gelu[approximate=tanh] .",
    "Sigmoid .", "Tanh .",      "Swish .",
    "Elu .",     "LeakyRelu .", "HardSwish .",
    "Mish .",    "Softplus .",  "Clip . 2 3",
    "Erf .",     "Mul . 2",     "HardSigmoid .",
};
static const char *const producers[] = {
    "MatMul x w",
    "MatMul x w; Add . c",
    "MatMul t w; Add . c",
    "Conv[channels_last=1] p k",
    "Conv[channels_last=1] p k c",
    "Conv[channels_last=1,group=21] p d",
    "Conv[channels_last=1,group=21] p d c",
    "Add x c",
    "Add x f",
    "Add x r",
    "Mul x c; Add . c",
};

// What follows a matmul or convolution with its bias: a residual or a gate, and
// learnt scales after an activation, where they are not folded into weights.
static const char *const biased[] = {
    "MatMul x w; Add . c",
    "Conv[channels_last=1] p k c",
    "Conv[channels_last=1,group=21] p d c",
};
static const char *const tails[] = {
    "Identity .",
    "Add . f",
    "Mul . f",
    "Relu .; Add . f",
    "Swish .; Add . f",
    "HardSwish .; Add . f",
    "Gelu .; Add . f",
    "Add . f; Relu .",
    "Add . f; Swish .",
    "Add . f; HardSwish .",
    "Mul . 2; Add . 3",
    "Relu .; Mul . 2; Add . 3",
    "HardSwish .; Mul . 2; Add . 3",
    "Relu .; Add . 3",
    "HardSwish .; Add . 3",
};

// Int8 GEMMs and convolutions: zero-point corrections to subtract, and scales.
static const char *const int8_gemms[] = {
    "MatMulInteger Ux Bw",
    "MatMulInteger Ux Bw; Sub . Ic",
    "MatMulInteger Ux Bw; Add . Ic",
    "MatMulInteger Ux Bw; Mul Ir I2; Sub $1 .; Sub . Ic",
    "ConvInteger[channels_last=1] Up Bk",
    "ConvInteger[channels_last=1] Up Bk; Sub . Ic",
    "ConvInteger[channels_last=1] Up Bk; Add . Ic",
    "ConvInteger[channels_last=1] Up Bk; Mul Ir I2; Sub $1 .; Sub . Ic",
};
static const char *const scaled[] = {
    "Identity .",
    "Cast[to=1] .; Mul . o",
    "Cast[to=1] .; Mul . c",
    "Cast[to=1] .; Mul . 2",
};
// Operators around them.
static const char *const quantised[] = {
    "Cast[to=1] Ix; Mul . o; Add . c; Add . f; LayerNormalization . c c",
    "Cast[to=1] Ix; Mul . c; Add . c; Add . f; LayerNormalization . c c",
    "Div x o; IsNaN .; Where . 9 $1; Round .; Add . o; Clip . 2 3; Cast[to=2] "
    ".",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Add . 3; Clip . 4 5; Cast[to=2] "
    ".",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Clip . 4 5; Cast[to=2] .",
    "Less x 0; Where . x 0; ReduceMin[keepdims=0] .; Min . 0",
    "Greater x 0; Where . x 0; ReduceMax[keepdims=0] .; Max . 0",
    "Round x; Add . 3; Clip . 4 5; Cast[to=2] .",
    "Round x; Clip . 4 5; Cast[to=2] .",
    "Relu x; Div . 2; IsNaN .; Where . 9 $2; Round .; Clip . 4 5; Cast[to=2] .",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Add . 3; Clip . 4 5; Cast[to=3] "
    ".",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Clip . 4 5; Cast[to=3] .",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Add . 3; Clip . 4 5; Sub . 3; "
    "Mul . 2",
    "Div x 2; IsNaN .; Where . 9 $1; Round .; Clip . 4 5; Mul . 2",
    "Cast[to=6] Bx; Add . I2; Cast[to=2] .",
    "Cast[to=1] Ux; Sub . 3; Mul . 2",
    "Cast[to=1] Bx; Mul . 2",
    "Cast[to=1] Ux",
    "Cast[to=1] Bx",
    "Cast[to=6] Ux",
    "Mul Io Ic",
};

// Operators whose attributes give different specs.
static const char *const variants[] = {
    "Gelu[approximate=tanh] x",
    "Gelu[approximate=tanh] t",
    "Cast[to=1] ix",
    "Cast[to=1] bx",
    "Cast[to=7] x",
    "Cast[to=9] x",
    "Cast[to=9] ix",
    "Cast[to=7] bx",
    "Cast[to=10] x",
    "Cast[to=16] x",
    "Cast[to=11] x",
    "Cast[to=6] x",
    "Cast[to=6] ix",
    "Cast[to=6] bx",
    "Gemm[transB=1] x w c",
    "Gemm[transB=1] x w",
    "Gemm[transA=1] t w c",
    "LSTM[projected=1,hidden_size=1] s _ q",
    "GRU[projected=1,hidden_size=1] e _ g",
    "GRU[projected=1,hidden_size=1,linear_before_reset=1] e _ g",
    "RNN[projected=1,hidden_size=1] l _ j",
    "Softmax[axis=0] x",
    "LogSoftmax[axis=0] x",
    "Resize[axes=1x2,mode=linear] p _ _ a1x10",
    "Resize[axes=1x2,mode=linear] p _ _ a2x10",
    "Resize[axes=1x2,mode=cubic] p _ _ a1x10",
};

static lb_status add_operators(lb_pack_list *l, uint32_t lanes) {
  char text[MAX_TEXT];
  for (size_t i = 0; i < COUNT(operands); i++) {
    int n = 1;
    for (const char *p = operands[i]; *p; p++) n += *p == ' ';
    for (lb_op op = 0; op < LB_OP_COUNT; op++) {
      const lb_op_info *info = &lb_op_infos[op];
      bool takes = n >= info->min_in && (info->max_in < 0 || n <= info->max_in);
      if (!takes || *info->domain || info->cls == LB_CLASS_CONTROL) continue;
      snprintf(text, sizeof text, "%s %s", info->name, operands[i]);
      for (size_t k = 0; k < COUNT(dtypes); k++)
        LB_TRY(lb_pack_sample(l, text, dtypes[k], lanes));
    }
  }
  return LB_OK;
}

static lb_status add_texts(lb_pack_list *l, const char *const *texts, size_t n,
                           uint32_t lanes) {
  for (size_t i = 0; i < n; i++)
    LB_TRY(lb_pack_sample(l, texts[i], LB_F32, lanes));
  return LB_OK;
}

// Each of the first followed by each of the second.
static lb_status add_pairs(lb_pack_list *l, const char *const *first, size_t n,
                           const char *const *second, size_t m,
                           uint32_t lanes) {
  char text[MAX_TEXT];
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < m; k++) {
      snprintf(text, sizeof text, "%s; %s", first[i], second[k]);
      LB_TRY(lb_pack_sample(l, text, LB_F32, lanes));
    }
  }
  return LB_OK;
}

lb_status lb_pack_samples(lb_pack_list *l, uint32_t lanes) {
  LB_TRY(add_operators(l, lanes));
  LB_TRY(add_texts(l, chains, COUNT(chains), lanes));
  LB_TRY(add_texts(l, variants, COUNT(variants), lanes));
  LB_TRY(add_pairs(l, producers, COUNT(producers), activations,
                   COUNT(activations), lanes));
  LB_TRY(add_pairs(l, int8_gemms, COUNT(int8_gemms), scaled, COUNT(scaled),
                   lanes));
  LB_TRY(add_texts(l, quantised, COUNT(quantised), lanes));
  return add_pairs(l, biased, COUNT(biased), tails, COUNT(tails), lanes);
}
