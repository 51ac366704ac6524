// partition/recurrent.c -- the kernels of a recurrence.
//
// Gates are in the order of ONNX: LSTM has i, o, f, c; GRU has z, r, h; RNN has
// one. Matmuls add the bias of the state, so that GRU can reset both.
#include "partition/recurrent.h"

#include <string.h>
#include <strings.h>

#include "partition/known.h"
#include "spec/panel.h"

enum { X, W, R, B, LENGTHS, H0, C0, P };  // inputs

// -- attributes --------------------------------------------------------------

static bool is_given(const lb_node *n, uint32_t i) {
  return i < n->n_in && n->in[i];
}

static int gates_of(const lb_node *n) {
  return n->op == LB_OP_LSTM ? 4 : n->op == LB_OP_GRU ? 3 : 1;
}

// Whether the state is reset before its matmul, which is then a separate one.
bool lb_recurrent_resets_first(const lb_node *n) {
  return n->op == LB_OP_GRU && lb_attr_int(n, "linear_before_reset", 0) == 0;
}

static int directions_of(const lb_node *n) {
  const char *dir = lb_attr_str(n, "direction", "forward");
  return strcasecmp(dir, "bidirectional") == 0 ? 2 : 1;
}

static bool is_backwards(const lb_node *n, int direction) {
  const char *dir = lb_attr_str(n, "direction", "forward");
  return direction == 1 || strcasecmp(dir, "reverse") == 0;
}

typedef enum activation { SIGMOID, TANH, RELU, OTHER } activation;

static int activations_of(const lb_node *n) {
  return n->op == LB_OP_LSTM ? 3 : n->op == LB_OP_GRU ? 2 : 1;
}

static activation activation_of(const lb_node *n, int direction, int i) {
  static const char *const names[] = {"Sigmoid", "Tanh", "Relu"};
  const lb_attr *list = lb_attr_find(n, "activations", LB_ATTR_STRINGS);
  int each = activations_of(n);
  if (!list || list->n == 0) return i == 0 && each > 1 ? SIGMOID : TANH;
  if (list->n != (uint32_t)(each * directions_of(n))) return OTHER;
  for (activation a = SIGMOID; a < OTHER; a++)
    if (!strcasecmp(list->strings[direction * each + i], names[a])) return a;
  return OTHER;
}

static bool has_usual_activations(const lb_node *n) {
  for (int d = 0; d < directions_of(n); d++)
    for (int i = 0; i < activations_of(n); i++)
      if (activation_of(n, d, i) == OTHER) return false;
  return true;
}

static bool has_weights(const lb_node *n) {
  const lb_tensor *r = lb_value_const(n->in[R]);
  return r && (r->dtype == LB_F32 || r->dtype == LB_F64) && r->rank == 3 &&
         lb_tensor_is_dense(r) && lb_tensor_count(r) > 0 &&
         r->dims[0] == directions_of(n) &&
         r->dims[1] == gates_of(n) * r->dims[2];
}

bool lb_recurrent_is(const lb_node *n) {
  if (lb_op_infos[n->op].cls != LB_CLASS_RECURRENT || !lb_op_projected(n))
    return false;
  bool clips = lb_attr_float(n, "clip", 0) > 0;
  return has_weights(n) && has_usual_activations(n) && !clips &&
         !is_given(n, P) && lb_attr_int(n, "input_forget", 0) == 0 &&
         (!is_given(n, B) || lb_value_const(n->in[B])) &&
         n->in[X]->info.dtype == n->in[R]->info.dtype;
}

int lb_recurrent_directions(const lb_partition *p) {
  return directions_of(p->nodes[0]);
}

int lb_recurrent_kernels(const lb_partition *p) {
  return lb_recurrent_resets_first(p->nodes[0]) ? 4 : 2;
}

// -- weights -----------------------------------------------------------------

const lb_value *lb_recurrent_weights(const lb_node *n) { return n->in[R]; }

// The gates that matmul number i computes.
static void matmul_gates(const lb_node *n, int i, int *first, int *count) {
  bool twice = lb_recurrent_resets_first(n);
  *first = i == 0 ? 0 : 2;
  *count = !twice ? gates_of(n) : i == 0 ? 2 : 1;
}

static lb_matrix weights_of(const lb_node *n, int direction, int i) {
  const lb_tensor *r = lb_value_const(n->in[R]);
  int first, count;
  matmul_gates(n, i, &first, &count);
  int64_t h = r->dims[2], skip = direction * r->dims[1] + first * h;
  size_t size = lb_dtype_size(r->dtype);
  return (lb_matrix){.data = (const char *)r->data + (size_t)(skip * h) * size,
                     .rows = h,
                     .cols = count * h,
                     .row_stride = 1,
                     .col_stride = h,
                     .elem = size,
                     .flush = r->dtype == LB_F32,
                     .layout = LB_LAYOUT_PANEL};
}

static int matmuls_of(const lb_node *n) {
  return lb_recurrent_resets_first(n) ? 2 : 1;
}

// Bytes of the first `count` matmuls, over all directions.
static bool size_of_first(const lb_node *n, int count, size_t *bytes) {
  size_t size;
  *bytes = 0;
  for (int i = 0; i < count; i++) {
    lb_matrix m = weights_of(n, i / matmuls_of(n), i % matmuls_of(n));
    if (!lb_panel_size(&m, &size) || size > SIZE_MAX - *bytes) return false;
    *bytes += size;
  }
  return true;
}

bool lb_recurrent_pack_size(const lb_node *n, size_t *bytes) {
  return size_of_first(n, directions_of(n) * matmuls_of(n), bytes);
}

void lb_recurrent_pack(const lb_node *n, void *to) {
  size_t at;
  for (int i = 0; i < directions_of(n) * matmuls_of(n); i++) {
    lb_matrix m = weights_of(n, i / matmuls_of(n), i % matmuls_of(n));
    if (size_of_first(n, i, &at)) lb_panel_pack(&m, (char *)to + at);
  }
}

// Elements before the weights of a matmul.
static int64_t packed_before(const lb_node *n, int direction, int matmul) {
  size_t bytes;
  size_of_first(n, direction * matmuls_of(n) + matmul, &bytes);
  return (int64_t)(bytes / lb_dtype_size(n->in[R]->info.dtype));
}

// -- operands ----------------------------------------------------------------

typedef struct recurrent_builder {  // state of building one kernel
  const lb_node *node;
  const lb_rshape *shape;
  lb_rnn_kernel *out;
  bool known;      // the spec is in the memo: nothing is generated
  uint8_t within;  // spec node: whether the time step is within its sequence;
                   // if there are lengths
  lb_specgen e;
  lb_dtype dtype;
  int direction;
  int64_t steps, batch, hidden;
  bool batch_first, backwards;
} recurrent_builder;

static const lb_tensor *tensor_of(const recurrent_builder *m, lb_rmem mem) {
  return &m->shape->tensor[mem];
}

// Adds the next operand: [batch, columns], which advances by `time_stride`
// elements per time step.
static void add_operand(recurrent_builder *m, lb_rmem mem, int64_t offset,
                        int64_t row, int64_t time_stride) {
  lb_binding *b = &m->out->b;
  m->out->mem[b->n_operands] = (uint8_t)mem;
  if (m->backwards && time_stride) {
    offset += (m->steps - 1) * time_stride;
    time_stride = -time_stride;
  }
  m->out->time_strides[b->n_operands] = time_stride;
  b->operands[b->n_operands++] =
      (lb_bind_operand){.offset = offset, .row = row, .col = 1};
}

static void add_x(recurrent_builder *m, int gate) {
  const lb_tensor *x = tensor_of(m, LB_RMEM_X);
  int64_t at = (m->direction * gates_of(m->node) + gate) * m->hidden;
  add_operand(m, LB_RMEM_X, at, x->strides[!m->batch_first],
              x->strides[m->batch_first]);
}

static void add_y(recurrent_builder *m) {
  const int64_t *s = tensor_of(m, LB_RMEM_Y)->strides;
  int time = m->batch_first, direction = time + 1;
  add_operand(m, LB_RMEM_Y, m->direction * s[direction],
              s[m->batch_first ? 0 : 2], s[time]);
}

static void add_state(recurrent_builder *m, lb_rmem mem) {
  const int64_t *s = tensor_of(m, mem)->strides;
  add_operand(m, mem, m->direction * s[m->batch_first], s[!m->batch_first], 0);
}

static void add_gates(recurrent_builder *m, int gate) {
  int64_t wide = gates_of(m->node) * m->hidden;
  int64_t first = m->direction * m->batch * wide;
  add_operand(m, LB_RMEM_GATES, first + gate * m->hidden, wide, 0);
}

static void add_reset(recurrent_builder *m) {
  int64_t first = m->direction * m->batch * m->hidden;
  add_operand(m, LB_RMEM_RESET, first, m->hidden, 0);
}

static uint8_t input(recurrent_builder *m, lb_layout layout) {
  if (m->known) return 0;
  return lb_spec_input(&m->e.b, m->dtype, layout);
}

// The contributions of x and of the state to a gate.
typedef struct gate {
  uint8_t x, h;
} gate;

static void read_gates(recurrent_builder *m, const int *which, int n,
                       gate *out) {
  for (int i = 0; i < n; i++) {
    add_x(m, which[i]);
    out[i].x = input(m, LB_LAYOUT_FULL);
  }
  for (int i = 0; i < n; i++) {
    add_gates(m, which[i]);
    out[i].h = input(m, LB_LAYOUT_FULL);
  }
}

static uint8_t read_state(recurrent_builder *m, lb_rmem mem) {
  add_state(m, mem);
  return input(m, LB_LAYOUT_FULL);
}

static void write(recurrent_builder *m, uint8_t node) {
  if (!m->known) lb_spec_output(&m->e.b, node, LB_LAYOUT_FULL);
}

// -- kernels -----------------------------------------------------------------

static uint8_t number(recurrent_builder *m, double x) {
  return m->known ? 0 : lb_specgen_num(&m->e, m->dtype, x);
}

// Reads whether the time step is within the row's sequence. Must follow all
// other inputs.
static void read_mask(recurrent_builder *m) {
  if (!is_given(m->node, LENGTHS)) return;
  const int64_t *s = tensor_of(m, LB_RMEM_MASK)->strides;
  add_operand(m, LB_RMEM_MASK, 0, s[1], s[0]);
  m->out->b.operands[m->out->b.n_operands - 1].col = 0;
  uint8_t mask = input(m, LB_LAYOUT_PER_ROW), zero = number(m, 0);
  if (!m->known) m->within = lb_specgen_test(&m->e, LB_S_LT, zero, mask);
}

// After the end of a sequence its state does not change, and its output is 0.
static void write_state(recurrent_builder *m, uint8_t fresh, uint8_t before) {
  bool masked = is_given(m->node, LENGTHS) && !m->known;
  write(m, masked ? lb_specgen_choose(&m->e, m->within, fresh, before) : fresh);
}

static void write_y(recurrent_builder *m, uint8_t fresh) {
  write_state(m, fresh, is_given(m->node, LENGTHS) ? number(m, 0) : fresh);
}

static uint8_t op2(recurrent_builder *m, lb_sop op, uint8_t x, uint8_t y) {
  return m->known ? 0 : lb_specgen_op2(&m->e, op, x, y);
}

static uint8_t activate(recurrent_builder *m, int i, uint8_t x) {
  lb_specgen *e = &m->e;
  if (m->known) return 0;
  switch (activation_of(m->node, m->direction, i)) {
    case SIGMOID: return lb_specgen_op1(e, LB_S_SIGMOID, x);
    case TANH: return lb_specgen_op1(e, LB_S_TANH, x);
    default: {
      uint8_t zero = lb_specgen_num(e, m->dtype, 0);
      return lb_specgen_choose(e, lb_specgen_test(e, LB_S_LT, x, zero), zero,
                               x);
    }
  }
}

static uint8_t activate_gate(recurrent_builder *m, int i, gate g) {
  return activate(m, i, op2(m, LB_S_ADD, g.x, g.h));
}

static void emit_matmul(recurrent_builder *m, int number) {
  const lb_node *n = m->node;
  int64_t gates = gates_of(n);
  int first, count;
  matmul_gates(n, number, &first, &count);
  m->out->b.dims[LB_DIM_COLS] = count * m->hidden;
  m->out->b.dims[LB_DIM_K] = m->hidden;
  add_gates(m, first);
  if (number == 0)
    add_state(m, LB_RMEM_H);
  else
    add_reset(m);
  input(m, LB_LAYOUT_FULL);
  add_operand(m, LB_RMEM_PACKED, packed_before(n, m->direction, number), 0, 0);
  input(m, LB_LAYOUT_PANEL);
  bool biased = is_given(n, B);
  int64_t bias = ((2 * m->direction + 1) * gates + first) * m->hidden;
  if (biased) add_operand(m, LB_RMEM_BIAS, bias, 0, 0);
  uint8_t added = biased ? input(m, LB_LAYOUT_PER_COL) : 0;
  uint8_t sum = m->known ? 0 : lb_spec_acc(&m->e.b, LB_ACC_DOT, m->dtype);
  write(m, biased ? op2(m, LB_S_ADD, sum, added) : sum);
}

// Reads the state if it may have to be kept and is not read otherwise.
static uint8_t read_masked_state(recurrent_builder *m) {
  return is_given(m->node, LENGTHS) ? read_state(m, LB_RMEM_H) : 0;
}

static void emit_lstm(recurrent_builder *m) {
  enum { I, O, F, C };
  gate g[4];
  add_state(m, LB_RMEM_H);
  add_state(m, LB_RMEM_C);
  add_y(m);
  read_gates(m, (const int[]){I, O, F, C}, 4, g);
  uint8_t c = read_state(m, LB_RMEM_C), before = read_masked_state(m);
  read_mask(m);
  uint8_t in = activate_gate(m, 0, g[I]), forget = activate_gate(m, 0, g[F]);
  uint8_t next = op2(m, LB_S_MUL, in, activate_gate(m, 1, g[C]));
  next = op2(m, LB_S_ADD, op2(m, LB_S_MUL, forget, c), next);
  uint8_t h = op2(m, LB_S_MUL, activate_gate(m, 0, g[O]), activate(m, 2, next));
  write_state(m, h, before);
  write_state(m, next, c);
  write_y(m, h);
}

static void emit_rnn(recurrent_builder *m) {
  gate g;
  add_state(m, LB_RMEM_H);
  add_y(m);
  read_gates(m, (const int[]){0}, 1, &g);
  uint8_t before = read_masked_state(m);
  read_mask(m);
  uint8_t h = activate_gate(m, 0, g);
  write_state(m, h, before);
  write_y(m, h);
}

enum { Z, RESET, NEXT };  // gates of GRU

static void emit_reset(recurrent_builder *m) {
  gate g;
  add_reset(m);
  read_gates(m, (const int[]){RESET}, 1, &g);
  uint8_t h = read_state(m, LB_RMEM_H);
  write(m, op2(m, LB_S_MUL, activate_gate(m, 0, g), h));
}

// h' = (1 - z) * activation(sum) + z * h.
static void write_gru(recurrent_builder *m, gate update, uint8_t sum,
                      uint8_t h) {
  uint8_t z = activate_gate(m, 0, update), next = activate(m, 1, sum);
  uint8_t fresh = op2(m, LB_S_MUL, op2(m, LB_S_SUB, number(m, 1), z), next);
  uint8_t after = op2(m, LB_S_ADD, fresh, op2(m, LB_S_MUL, z, h));
  write_state(m, after, h);
  write_y(m, after);
}

static void emit_gru(recurrent_builder *m) {
  gate g[3];
  bool reset = lb_recurrent_resets_first(m->node);
  add_state(m, LB_RMEM_H);
  add_y(m);
  if (reset)
    read_gates(m, (const int[]){Z, NEXT}, 2, g);
  else
    read_gates(m, (const int[]){Z, NEXT, RESET}, 3, g);
  uint8_t h = read_state(m, LB_RMEM_H), from_h = g[1].h;
  read_mask(m);
  if (!reset) from_h = op2(m, LB_S_MUL, activate_gate(m, 0, g[2]), from_h);
  write_gru(m, g[0], op2(m, LB_S_ADD, g[1].x, from_h), h);
}

// Kernels of a direction: matmul, gates; or matmul, reset, matmul, gates.
static lb_form form_of(int kernel) {
  return kernel % 2 == 0 ? LB_FORM_MATMUL : LB_FORM_ELTWISE;
}

static void emit_kernel(recurrent_builder *m, int kernel) {
  lb_op op = m->node->op;
  if (!m->known) lb_spec_begin(&m->e.b, form_of(kernel));
  m->out->b.dims[LB_DIM_ROWS] = m->batch;
  m->out->b.dims[LB_DIM_COLS] = m->hidden;
  if (form_of(kernel) == LB_FORM_MATMUL)
    emit_matmul(m, kernel / 2);
  else if (kernel == 1 && lb_recurrent_resets_first(m->node))
    emit_reset(m);
  else if (op == LB_OP_LSTM)
    emit_lstm(m);
  else if (op == LB_OP_GRU)
    emit_gru(m);
  else
    emit_rnn(m);
}

// -- binding ------------------------------------------------------------------

bool lb_recurrent_fits(const lb_partition *p, const lb_rshape *s) {
  const lb_tensor *x = &s->tensor[LB_RMEM_X];
  const lb_tensor *r = lb_value_const(p->nodes[0]->in[R]);
  return x->rank == 3 && x->dims[0] > 0 && x->dims[1] > 0 &&
         x->strides[2] == 1 && x->dims[2] == r->dims[0] * r->dims[1];
}

// Layouts do not determine the spec: the node does, at all shapes.
static lb_memo_key key_of(const lb_partition *p, int direction, int kernel) {
  lb_memo_key key = {
      .nodes = p->nodes, .n_nodes = 1, .form = (uint8_t)form_of(kernel)};
  key.layouts[0] = (uint8_t)direction;
  key.layouts[1] = (uint8_t)kernel;
  return key;
}

lb_status lb_recurrent_bind(const lb_partition *p, const lb_rshape *s,
                            int direction, int kernel, lb_rnn_kernel *out) {
  const lb_node *n = p->nodes[0];
  const lb_tensor *x = &s->tensor[LB_RMEM_X];
  recurrent_builder m = {
      .node = n, .shape = s, .out = out, .direction = direction};
  m.dtype = x->dtype;
  m.batch_first = lb_attr_int(n, "layout", 0) != 0;
  m.backwards = is_backwards(n, direction);
  m.steps = x->dims[m.batch_first];
  m.batch = x->dims[!m.batch_first];
  m.hidden = lb_value_const(n->in[R])->dims[2];
  lb_memo_key key = key_of(p, direction, kernel);
  lb_bind_begin(&out->b);
  bool ok = m.known = lb_bind_known(p, &key, 0, &out->b);
  emit_kernel(&m, kernel);
  if (!ok) LB_TRY(lb_bind_new(p, &key, &m.e, &out->b, &ok));
  char label[128];
  return ok ? LB_OK
            : lb_error(LB_INTERNAL,
                       "%s: one of its kernels exceeds the limits of a spec",
                       lb_node_label(n, label, sizeof label));
}
