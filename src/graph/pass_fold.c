// graph/pass_fold.c -- constant folding and inlining of If.
//
// fold: evaluates nodes whose inputs are all constants; makes outputs constant
// whose contents the shape rules know (such as Shape of fixed dims, or Gather
// of one fixed dim of a Shape); replaces captures of constants inside bodies.
// inline: replaces an If with a constant condition by its branch.
#include <stdio.h>
#include <string.h>

#include "graph/infer.h"
#include "graph/rewrite.h"

// -- contents the shape rules know -------------------------------------------

// Writes x as an element of dtype t; false if it is out of range.
static bool put_int(lb_dtype t, int64_t x, void *p) {
#define PUT(T, low, high)                      \
  do {                                         \
    if (x < (low) || x > (high)) return false; \
    T narrow_ = (T)x;                          \
    memcpy(p, &narrow_, sizeof narrow_);       \
    return true;                               \
  } while (0)
  switch (t) {
    case LB_I64: PUT(int64_t, INT64_MIN, INT64_MAX);
    case LB_I32: PUT(int32_t, INT32_MIN, INT32_MAX);
    case LB_I16: PUT(int16_t, INT16_MIN, INT16_MAX);
    case LB_I8: PUT(int8_t, INT8_MIN, INT8_MAX);
    case LB_U64: PUT(uint64_t, 0, INT64_MAX);
    case LB_U32: PUT(uint32_t, 0, UINT32_MAX);
    case LB_U16: PUT(uint16_t, 0, UINT16_MAX);
    case LB_U8: PUT(uint8_t, 0, UINT8_MAX);
    case LB_BOOL: PUT(uint8_t, 0, 1);
    default: return false;
  }
#undef PUT
}

static bool all_known(const lb_vinfo *v) {
  if (!v->known || v->rank < 0 || v->rank > 1) return false;
  if (v->rank == 1 && !lb_dim_is(v->dims[0], v->n_known)) return false;
  if (v->rank == 0 && v->n_known != 1) return false;
  for (int i = 0; i < v->n_known; i++)
    if (!lb_dim_is_const(v->known[i])) return false;
  return true;
}

static lb_status fold_known(lb_rewrite *rw, lb_value *v) {
  if (!v || !all_known(&v->info)) return LB_OK;
  size_t size = lb_dtype_size(v->info.dtype);
  size_t n = (size_t)v->info.n_known;
  lb_tensor *t = lb_arena_new(&rw->graph->arena, lb_tensor, 1);
  unsigned char *data = lb_arena_zalloc(&rw->graph->arena, n * size, 8);
  if (!t || !data) return lb_oom();
  for (size_t i = 0; i < n; i++)
    if (!put_int(v->info.dtype, v->info.known[i].k, data + i * size))
      return LB_OK;
  *t = (lb_tensor){.dtype = v->info.dtype, .rank = v->info.rank, .data = data};
  if (t->rank) t->dims[0] = (int64_t)n;
  lb_tensor_dense(t);
  lb_rewrite_constant(rw, v, t);
  return LB_OK;
}

// -- evaluation --------------------------------------------------------------

// One node to be evaluated; its arrays are in the pass's scratch arena.
typedef struct folding {
  lb_node *node;
  lb_tensor *in, *out;
  size_t in_bytes;
} folding;

static bool inputs_constant(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && !lb_value_const(n->in[i])) return false;
  return n->n_in > 0;
}

static bool wants_output(const lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) return true;
  return false;
}

static bool may_evaluate(const lb_rewrite *rw, const lb_node *n) {
  return rw->options->eval && wants_output(n) && inputs_constant(n);
}

static size_t add_sat(size_t a, size_t b) {
  size_t r;
  return __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}

// The inputs of Cast and DequantizeLinear were stored in a small type and may
// grow: kernels need them in the type in which they compute.
static bool is_small(const lb_rewrite *rw, const folding *f, size_t bytes) {
  size_t limit = rw->options->fold_limit;
  lb_op op = f->node->op;
  bool stored = op == LB_OP_Cast || op == LB_OP_DequantizeLinear;
  return bytes <= (limit ? limit : LB_FOLD_LIMIT) || bytes <= f->in_bytes ||
         (stored && bytes <= lb_mul_sat(f->in_bytes, 4));
}

// Stops folding one constant into many others when these outgrow the model.
static bool is_in_budget(const lb_rewrite *rw, size_t bytes) {
  return bytes <= LB_FOLD_LIMIT || bytes <= rw->budget;
}

static bool is_formula(const lb_rewrite *rw, const folding *f, size_t bytes) {
  return lb_op_infos[f->node->op].cls == LB_CLASS_ELEMENTWISE &&
         rw->options->fold_limit == 0 &&
         bytes <= LB_FOLD_FORMULAS - rw->formulas;
}

// Bytes of an output with these dims; SIZE_MAX if they are not known.
static size_t bytes_of(const lb_vinfo *v) {
  if (v->rank < 0) return SIZE_MAX;
  size_t bytes = lb_dtype_size(v->dtype);
  for (int i = 0; i < v->rank; i++) {
    if (!lb_dim_is_const(v->dims[i]) || v->dims[i].k < 0) return SIZE_MAX;
    bytes = lb_mul_sat(bytes, (size_t)v->dims[i].k);
  }
  return bytes;
}

// Checks before evaluation whether the node is valid and its outputs are small
// enough. The kernel determines the outputs of a dynamic node, which are never
// much larger than its inputs.
static lb_status check_foldable(lb_rewrite *rw, const folding *f,
                                bool *foldable) {
  const lb_node *n = f->node;
  *foldable = false;
  lb_vinfo *in = lb_arena_new(&rw->scratch, lb_vinfo, n->n_in);
  lb_vinfo *out = lb_arena_new(&rw->scratch, lb_vinfo, n->n_out);
  if (!in || !out) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) {
    in[i].rank = -1;
    if (n->in[i]) in[i] = n->in[i]->info;
  }
  lb_infer c = {.node = n, .arena = &rw->scratch, .in = in, .out = out};
  lb_status st = lb_infer_node(&c);
  if (lb_status_code(st) == LB_OOM) return st;
  bool valid = !lb_failed(st);
  lb_status_drop(st);
  if (!valid) return LB_OK;
  size_t total = 0;
  bool dynamic = lb_op_has(n->op, LB_TRAIT_DYNAMIC);
  for (uint32_t i = 0; i < n->n_out && !dynamic; i++)
    if (n->out[i]) total = add_sat(total, bytes_of(&out[i]));
  *foldable = is_in_budget(rw, total) &&
              (is_small(rw, f, total) || is_formula(rw, f, total));
  return LB_OK;
}

static lb_status gather_inputs(lb_rewrite *rw, lb_node *n, folding *f) {
  *f = (folding){.node = n};
  f->in = lb_arena_new(&rw->scratch, lb_tensor, n->n_in);
  f->out = lb_arena_new(&rw->scratch, lb_tensor, n->n_out);
  if (!f->in || !f->out) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i]) continue;
    f->in[i] = *n->in[i]->info.data;
    f->in_bytes = add_sat(f->in_bytes, lb_tensor_bytes(&f->in[i]));
  }
  return LB_OK;
}

// Copies the tensor to the graph's arena, dense.
static lb_status copy_dense(lb_rewrite *rw, const lb_tensor *t,
                            const lb_tensor **out) {
  lb_tensor *copy = lb_arena_new(&rw->graph->arena, lb_tensor, 1);
  if (!copy) return lb_oom();
  *copy = *t;
  if (!lb_tensor_is_dense(t)) {
    lb_tensor_dense(copy);
    copy->data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(t), 64);
    if (!copy->data) return lb_oom();
    lb_tensor_copy(t, copy);
  }
  *out = copy;
  return LB_OK;
}

static bool agrees(const lb_value *v, const lb_tensor *t) {
  return t->dtype != LB_NONE && t->data &&
         (v->info.dtype == LB_NONE || v->info.dtype == t->dtype);
}

static lb_status set_outputs(lb_rewrite *rw, const folding *f) {
  lb_node *n = f->node;
  size_t total = 0;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!n->out[i]) continue;
    if (!agrees(n->out[i], &f->out[i])) return LB_OK;
    total = add_sat(total, lb_tensor_bytes(&f->out[i]));
  }
  if (!is_in_budget(rw, total)) return LB_OK;
  if (!is_small(rw, f, total)) {
    if (!is_formula(rw, f, total)) return LB_OK;
    rw->formulas += total;
  }
  if (total > LB_FOLD_LIMIT) rw->budget -= total;
  for (uint32_t i = 0; i < n->n_out; i++) {
    const lb_tensor *t = NULL;
    if (!n->out[i]) continue;
    LB_TRY(copy_dense(rw, &f->out[i], &t));
    lb_rewrite_constant(rw, n->out[i], t);
  }
  return LB_OK;
}

static lb_status evaluate(lb_rewrite *rw, lb_node *n) {
  folding f;
  bool foldable;
  LB_TRY(gather_inputs(rw, n, &f));
  LB_TRY(check_foldable(rw, &f, &foldable));
  if (!foldable) return LB_OK;
  const lb_pass_options *o = rw->options;
  lb_status st = o->eval(o->user, n, f.in, &rw->graph->arena, f.out);
  if (lb_failed(st)) {
    lb_status_drop(st);
    return LB_OK;
  }
  return set_outputs(rw, &f);
}

// -- the pass ----------------------------------------------------------------

static void bind_captures(lb_rewrite *rw, lb_node *n) {
  for (uint32_t k = 0; k < n->n_regions; k++) {
    lb_region *r = n->regions[k];
    for (uint32_t i = 1; i <= n->n_captures; i++) {
      lb_value *from = n->in[n->n_in - i];
      lb_value *param = r->params[r->n_params - i];
      if (lb_value_const(from) && lb_rewrite_uses(rw, param) > 0)
        lb_rewrite_replace(rw, param, from);
    }
  }
}

static lb_status fold_node(lb_rewrite *rw, lb_node *n) {
  if (lb_op_infos[n->op].cls == LB_CLASS_CONTROL) {
    bind_captures(rw, n);
    return LB_OK;
  }
  if (lb_rewrite_random(n)) return LB_OK;
  for (uint32_t i = 0; i < n->n_out; i++) LB_TRY(fold_known(rw, n->out[i]));
  return may_evaluate(rw, n) ? evaluate(rw, n) : LB_OK;
}

lb_status lb_pass_fold(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, fold_node);
}

// -- If with a constant condition --------------------------------------------

// The branch that is known to run, or NULL.
static lb_region *taken_branch(const lb_node *n) {
  if (n->op != LB_OP_If) return NULL;
  const lb_tensor *c = lb_value_const(n->in[0]);
  if (!c || c->dtype != LB_BOOL || lb_tensor_count(c) != 1) return NULL;
  return n->regions[*(const unsigned char *)c->data ? 0 : 1];
}

// Names were unique only within the branch.
static lb_status rename_value(lb_graph *g, const lb_node *n, lb_value *v) {
  lb_strbuf name = {0};
  lb_strbuf_printf(&name, "%.60s/%s", n->name, v->name);
  lb_status st = lb_strbuf_status(&name);
  if (!lb_failed(st)) {
    v->name = lb_arena_strdup(&g->arena, lb_strbuf_str(&name));
    if (!v->name) st = lb_oom();
  }
  lb_strbuf_fini(&name);
  return st;
}

// Moves a node of the branch to the region r of the If `n`.
static lb_status adopt(lb_region *r, const lb_node *n, lb_node *child) {
  child->region = r;
  for (uint32_t i = 0; i < child->n_out; i++) {
    if (!child->out[i]) continue;
    child->out[i]->region = r;
    LB_TRY(rename_value(r->graph, n, child->out[i]));
  }
  for (uint32_t i = 0; i < child->n_regions; i++) child->regions[i]->parent = r;
  return LB_OK;
}

static void bind_branch(lb_rewrite *rw, const lb_node *n, lb_region *branch) {
  for (uint32_t i = 0; i < n->n_captures; i++)
    lb_rewrite_replace(rw, branch->params[i], n->in[1 + i]);
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) lb_rewrite_replace(rw, n->out[i], branch->results[i]);
  rw->changes++;
}

static uint64_t count_after(const lb_region *r) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_region *b = taken_branch(r->nodes[i]);
    n += b ? b->n_nodes : 1;
  }
  return n;
}

static lb_status splice(lb_rewrite *rw, lb_region *r) {
  uint64_t cap = count_after(r);
  if (cap > UINT32_MAX / 2) return lb_error(LB_UNSUPPORTED, "too many nodes");
  lb_node **nodes = lb_arena_new(&rw->graph->arena, lb_node *, cap);
  if (!nodes) return lb_oom();
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    lb_region *branch = taken_branch(n);
    if (!branch) {
      nodes[count++] = n;
      continue;
    }
    for (uint32_t k = 0; k < branch->n_nodes; k++) {
      LB_TRY(adopt(r, n, branch->nodes[k]));
      nodes[count++] = branch->nodes[k];
    }
    bind_branch(rw, n, branch);
  }
  r->nodes = nodes;
  r->n_nodes = count;
  r->cap_nodes = (uint32_t)cap;
  return LB_OK;
}

static lb_status inline_region(lb_rewrite *rw, lb_region *r) {
  bool any = false;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    any = any || taken_branch(r->nodes[i]);
  if (any) LB_TRY(splice(rw, r));
  for (uint32_t i = 0; i < r->n_nodes; i++)
    for (uint32_t k = 0; k < r->nodes[i]->n_regions; k++)
      LB_TRY(inline_region(rw, r->nodes[i]->regions[k]));
  return LB_OK;
}

lb_status lb_pass_inline(lb_rewrite *rw) {
  LB_TRY(inline_region(rw, rw->graph->main));
  return lb_rewrite_walk(rw, NULL);
}
