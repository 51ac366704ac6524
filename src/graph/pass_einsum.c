// graph/pass_einsum.c -- expresses Einsum with MatMul, Mul and Transpose.
//
// A *label* is a letter, or one axis of the ellipsis. For two inputs a and b,
// each label is one of
//
//   batch: in both, and in the result     left: in a and the result
//   sum:   in both, not in the result     right: in b and the result
//
// and with a transposed to A [batch, left, sum], and b to B [batch, sum,
// right],
//
//   Einsum(a, b) = transposed to the result's order(MatMul(A, B))
//
// Several left labels are additional batch axes of A; several sum labels are
// merged into one axis, and so are several right labels of known sizes. Without
// a sum label it is a Mul. Einsum of one input is a Transpose. With more than
// two inputs, two of them are replaced by their Einsum, repeatedly, as long as
// the intermediate result has no more axes than they have. Anything else, such
// as a diagonal, is left alone.
#include <ctype.h>
#include <string.h>

#include "graph/rewrite.h"

enum { LETTERS = 52, MAX_LABELS = LETTERS + LB_MAX_RANK, MAX_IN = 8 };

typedef struct term {
  int8_t label[LB_MAX_RANK];
  int n;
  lb_value *value;
} term;

typedef struct graph_einsum {
  lb_rewrite *rw;
  lb_node *node;
  term in[MAX_IN], out;
  lb_dim size[MAX_LABELS];
} graph_einsum;

// -- reading -----------------------------------------------------------------

static int letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static int index_of(const term *t, int label) {
  for (int i = 0; i < t->n; i++)
    if (t->label[i] == label) return i;
  return -1;
}

static bool put(term *t, int label) {
  if (t->n == LB_MAX_RANK || index_of(t, label) >= 0) return false;
  t->label[t->n++] = (int8_t)label;
  return true;
}

// Reads letters up to ',', '-' or the end; the ellipsis has `dots` axes.
static bool read_term(const char **p, int dots, term *t) {
  for (; **p && **p != ',' && **p != '-'; ++*p) {
    int l = letter(**p);
    if (isspace((unsigned char)**p)) continue;
    if (l >= 0) {
      if (!put(t, l)) return false;
    } else if (strncmp(*p, "...", 3) == 0) {
      *p += 2;
      for (int i = 0; i < dots; i++)
        if (!put(t, MAX_LABELS - dots + i)) return false;
    } else {
      return false;
    }
  }
  return true;
}

static int letters_until(const char *p) {
  int n = 0;
  for (; *p && *p != ',' && *p != '-'; p++) n += letter(*p) >= 0;
  return n;
}

// An equation without an arrow is rare and not supported.
static bool read_equation(graph_einsum *e) {
  const lb_node *n = e->node;
  const char *p = lb_attr_str(n, "equation", "");
  int dots = 0;
  if (!strstr(p, "->")) return false;
  for (uint32_t i = 0; i < n->n_in; i++) {
    int rank = n->in[i]->info.rank;
    int own = rank - letters_until(p);
    if (rank < 0 || own < 0) return false;
    e->in[i].value = n->in[i];
    if (own > dots) dots = own;
    if (!read_term(&p, own, &e->in[i]) || e->in[i].n != rank) return false;
    if (*p == ',') p++;
  }
  if (strncmp(p, "->", 2) != 0) return false;
  p += 2;
  return read_term(&p, dots, &e->out) && !*p;
}

// Finds the sizes of labels. Those of sum labels must be known to be equal,
// because MatMul does not broadcast them.
static bool find_sizes(graph_einsum *e) {
  for (uint32_t i = 0; i < e->node->n_in; i++)
    for (int k = 0; k < e->in[i].n; k++) {
      int l = e->in[i].label[k];
      lb_dim d = e->in[i].value->info.dims[k];
      bool second = i == 1 && index_of(&e->in[0], l) >= 0;
      if (second && index_of(&e->out, l) < 0 && !lb_dim_equal(e->size[l], d))
        return false;
      if (!second || lb_dim_is(e->size[l], 1)) e->size[l] = d;
    }
  return true;
}

static bool match(lb_rewrite *rw, lb_node *n, graph_einsum *e) {
  if (n->op != LB_OP_Einsum || n->n_in > MAX_IN || !n->out[0] ||
      !lb_dtype_is_float(n->out[0]->info.dtype))
    return false;
  memset(e, 0, sizeof *e);
  e->rw = rw;
  e->node = n;
  return read_equation(e) && (n->n_in > 2 || find_sizes(e));
}

// -- more than two inputs ----------------------------------------------------

typedef struct einsum_pair {
  uint32_t a, b;  // inputs, a < b
  int labels;     // number of their labels
  term result;    // those that the result or another input needs
} einsum_pair;

static bool is_needed(const graph_einsum *e, const einsum_pair *p, int label) {
  if (index_of(&e->out, label) >= 0) return true;
  for (uint32_t i = 0; i < e->node->n_in; i++)
    if (i != p->a && i != p->b && index_of(&e->in[i], label) >= 0) return true;
  return false;
}

// False if the intermediate result has more axes than either input.
static bool measure(const graph_einsum *e, einsum_pair *p) {
  const term *a = &e->in[p->a], *b = &e->in[p->b];
  p->labels = 0;
  p->result.n = 0;
  for (int i = 0; i < a->n + b->n; i++) {
    int l = i < a->n ? a->label[i] : b->label[i - a->n];
    if (l >= LETTERS) return false;
    if (i >= a->n && index_of(a, l) >= 0) continue;
    p->labels++;
    if (is_needed(e, p, l) && !put(&p->result, l)) return false;
  }
  return p->result.n <= (a->n > b->n ? a->n : b->n);
}

// The pair with the fewest labels, which is the least work.
static bool find_pair(const graph_einsum *e, einsum_pair *out) {
  bool found = false;
  for (uint32_t a = 0; a < e->node->n_in; a++)
    for (uint32_t b = a + 1; b < e->node->n_in; b++) {
      einsum_pair p = {.a = a, .b = b};
      if (!measure(e, &p) || (found && p.labels >= out->labels)) continue;
      *out = p;
      found = true;
    }
  return found;
}

static char *write_term(char *to, const term *t) {
  for (int i = 0; i < t->n; i++) {
    int l = t->label[i];
    *to++ = (char)(l < 26 ? 'A' + l : 'a' + l - 26);
  }
  return to;
}

static lb_status set_equation(const graph_einsum *e, lb_node *n, const term *in,
                              const term *out) {
  char text[(MAX_IN + 1) * (LB_MAX_RANK + 1) + 2], *to = text;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (i > 0) *to++ = ',';
    to = write_term(to, &in[i]);
  }
  *to++ = '-', *to++ = '>';
  *write_term(to, out) = '\0';
  return lb_node_set_str(e->rw->graph, n, "equation", text);
}

static lb_status rewrite_pair(graph_einsum *e) {
  einsum_pair p;
  term others[MAX_IN], two[2];
  lb_value *in[MAX_IN];
  uint32_t n = 0;
  lb_node *node;
  if (!find_pair(e, &p)) return LB_OK;
  two[0] = e->in[p.a], two[1] = e->in[p.b];
  LB_TRY(lb_rewrite_insert(e->rw, e->node, LB_OP_Einsum,
                           (lb_value *[]){two[0].value, two[1].value}, 2,
                           &node));
  LB_TRY(set_equation(e, node, two, &p.result));
  LB_TRY(lb_rewrite_inserted(e->rw, node, &p.result.value));
  for (uint32_t i = 0; i < e->node->n_in; i++)
    if (i != p.b) others[n++] = i == p.a ? p.result : e->in[i];
  for (uint32_t i = 0; i < n; i++) in[i] = others[i].value;
  LB_TRY(lb_rewrite_become(e->rw, e->node, LB_OP_Einsum, in, n));
  return set_equation(e, e->node, others, &e->out);
}

// -- operands ----------------------------------------------------------------

// Appends the labels of `from` that are in `other` and in the result, or not,
// as `shared` and `in_result` say.
static void select_labels(const graph_einsum *e, const term *from,
                          const term *other, bool shared, bool in_result,
                          term *out) {
  for (int i = 0; i < from->n; i++) {
    int l = from->label[i];
    if ((index_of(other, l) >= 0) == shared &&
        (index_of(&e->out, l) >= 0) == in_result)
      out->label[out->n++] = (int8_t)l;
  }
}

static void append(term *to, const term *more) {
  for (int i = 0; i < more->n; i++) to->label[to->n++] = more->label[i];
}

static lb_status insert(const graph_einsum *e, lb_op op, lb_value *x,
                        lb_value *y, lb_value **out) {
  lb_value *in[] = {x, y};
  return lb_rewrite_make(e->rw, e->node, op, in, y ? 2 : 1, out);
}

static lb_status with_list(const graph_einsum *e, lb_op op, lb_value *x,
                           const int64_t *list, int n, lb_value **out) {
  lb_value *v;
  LB_TRY(lb_const_ints(e->rw->graph, "list", list, (uint32_t)n, &v));
  return insert(e, op, x, v, out);
}

static bool is_in_order(const term *from, const term *to) {
  return memcmp(from->label, to->label, (size_t)to->n) == 0;
}

static void perm_of(const term *from, const term *to, int64_t *perm) {
  for (int i = 0; i < to->n; i++) perm[i] = index_of(from, to->label[i]);
}

// `t` with its axes in the order of `to`.
static lb_status transpose_to(const graph_einsum *e, const term *t,
                              const term *to, lb_value **out) {
  int64_t perm[LB_MAX_RANK];
  lb_node *n;
  *out = t->value;
  if (is_in_order(t, to)) return LB_OK;
  perm_of(t, to, perm);
  LB_TRY(lb_rewrite_insert(e->rw, e->node, LB_OP_Transpose, out, 1, &n));
  LB_TRY(lb_node_set_ints(e->rw->graph, n, "perm", perm, (uint32_t)to->n));
  return lb_rewrite_inserted(e->rw, n, out);
}

// Changes the node itself: `t` in the order of the result.
static lb_status finish(const graph_einsum *e, const term *t) {
  int64_t perm[LB_MAX_RANK];
  lb_value *v = t->value;
  if (is_in_order(t, &e->out))
    return lb_rewrite_become(e->rw, e->node, LB_OP_Identity, &v, 1);
  perm_of(t, &e->out, perm);
  LB_TRY(lb_rewrite_become(e->rw, e->node, LB_OP_Transpose, &v, 1));
  return lb_node_set_ints(e->rw->graph, e->node, "perm", perm,
                          (uint32_t)e->out.n);
}

// -- one input, and elementwise products -------------------------------------

static lb_status rewrite_one(graph_einsum *e) {
  return e->in[0].n == e->out.n ? finish(e, &e->in[0]) : LB_OK;
}

// Both inputs with the axes of the result, size 1 where a label is missing.
static lb_status rewrite_mul(graph_einsum *e) {
  lb_value *in[2];
  for (int i = 0; i < 2; i++) {
    term to = {0};
    int64_t missing[LB_MAX_RANK];
    int n = 0;
    for (int k = 0; k < e->out.n; k++)
      if (index_of(&e->in[i], e->out.label[k]) >= 0)
        to.label[to.n++] = e->out.label[k];
      else
        missing[n++] = k;
    LB_TRY(transpose_to(e, &e->in[i], &to, &in[i]));
    if (n) LB_TRY(with_list(e, LB_OP_Unsqueeze, in[i], missing, n, &in[i]));
  }
  return lb_rewrite_become(e->rw, e->node, LB_OP_Mul, in, 2);
}

// -- matmul ------------------------------------------------------------------

typedef struct einsum_parts {
  term batch, left, sum, right;
} einsum_parts;

static bool known_size(const graph_einsum *e, const term *t, int64_t *size) {
  *size = 1;
  for (int i = 0; i < t->n; i++) {
    lb_dim d = e->size[t->label[i]];
    if (!lb_dim_is_const(d) || __builtin_mul_overflow(*size, d.k, size))
      return false;
  }
  return true;
}

// Whether the sum labels, and the right labels, can each be merged into one
// axis. One of the two may have a size that is only known at run time.
static bool can_merge(const graph_einsum *e, const einsum_parts *p) {
  int64_t size;
  bool sums = known_size(e, &p->sum, &size);
  bool rights = known_size(e, &p->right, &size);
  if (p->right.n > 1 && (!rights || p->batch.n > 0)) return false;
  return p->sum.n == 1 || sums || rights;
}

// A: [batch, left, sum], sums merged.
static lb_status make_a(const graph_einsum *e, const einsum_parts *p,
                        lb_value **out) {
  int64_t dims[LB_MAX_RANK] = {0};
  term to = p->batch;
  append(&to, &p->left);
  int first = to.n;
  append(&to, &p->sum);
  LB_TRY(transpose_to(e, &e->in[0], &to, out));
  if (p->sum.n > 1) {
    if (!known_size(e, &p->sum, &dims[first])) dims[first] = -1;
    LB_TRY(with_list(e, LB_OP_Reshape, *out, dims, first + 1, out));
  }
  int64_t axis = p->batch.n;
  return p->left.n ? LB_OK : with_list(e, LB_OP_Unsqueeze, *out, &axis, 1, out);
}

// B: [batch, 1 for each further left, sum, right], sums and rights merged.
static lb_status make_b(const graph_einsum *e, const einsum_parts *p,
                        lb_value **out) {
  int64_t dims[LB_MAX_RANK] = {0}, ones[LB_MAX_RANK];
  int nb = p->batch.n;
  term to = p->batch;
  append(&to, &p->sum);
  append(&to, &p->right);
  LB_TRY(transpose_to(e, &e->in[1], &to, out));
  if (p->sum.n > 1 || p->right.n > 1) {
    if (!known_size(e, &p->sum, &dims[nb])) dims[nb] = -1;
    if (!known_size(e, &p->right, &dims[nb + 1])) dims[nb + 1] = -1;
    LB_TRY(with_list(e, LB_OP_Reshape, *out, dims, nb + 2, out));
  } else if (p->right.n == 0) {
    int64_t last = nb + 1;
    LB_TRY(with_list(e, LB_OP_Unsqueeze, *out, &last, 1, out));
  }
  int more = nb ? p->left.n - 1 : 0;
  for (int i = 0; i < more; i++) ones[i] = nb + i;
  return more > 0 ? with_list(e, LB_OP_Unsqueeze, *out, ones, more, out)
                  : LB_OK;
}

// Removes the axes that were added, and splits right axes that were merged.
static lb_status restore_axes(const graph_einsum *e, const einsum_parts *p,
                              lb_value **y) {
  int64_t dims[LB_MAX_RANK] = {0}, axes[2];
  int n = 0, lefts = p->batch.n + p->left.n;
  if (p->left.n == 0) axes[n++] = p->batch.n;
  if (p->right.n == 0)
    axes[n++] = p->batch.n + 1 + (p->left.n ? p->left.n - 1 : 0);
  if (n) LB_TRY(with_list(e, LB_OP_Squeeze, *y, axes, n, y));
  if (p->right.n < 2) return LB_OK;
  for (int i = 0; i < p->right.n; i++)
    dims[lefts + i] = e->size[p->right.label[i]].k;
  return with_list(e, LB_OP_Reshape, *y, dims, lefts + p->right.n, y);
}

static lb_status rewrite_matmul(graph_einsum *e) {
  einsum_parts p = {0};
  term y = {0};
  lb_value *a, *b;
  const term *l = &e->in[0], *r = &e->in[1];
  select_labels(e, l, r, true, true, &p.batch);
  select_labels(e, l, r, false, true, &p.left);
  select_labels(e, l, r, true, false, &p.sum);
  select_labels(e, r, l, false, true, &p.right);
  if (p.batch.n + p.left.n + p.sum.n != l->n ||
      p.batch.n + p.right.n + p.sum.n != r->n)
    return LB_OK;  // one input has a sum of its own
  if (p.sum.n == 0) return rewrite_mul(e);
  if (!can_merge(e, &p) || p.batch.n + p.left.n + 2 > LB_MAX_RANK) return LB_OK;
  LB_TRY(make_a(e, &p, &a));
  LB_TRY(make_b(e, &p, &b));
  LB_TRY(insert(e, LB_OP_MatMul, a, b, &y.value));
  LB_TRY(restore_axes(e, &p, &y.value));
  append(&y, &p.batch);
  append(&y, &p.left);
  append(&y, &p.right);
  return finish(e, &y);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  graph_einsum e;
  if (!match(rw, n, &e)) return LB_OK;
  if (n->n_in > 2) return rewrite_pair(&e);
  return n->n_in == 1 ? rewrite_one(&e) : rewrite_matmul(&e);
}

lb_status lb_pass_einsum(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
