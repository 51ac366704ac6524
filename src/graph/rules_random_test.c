// graph/rules_random_test.c -- runs every rule with random inputs and
// attributes, once with symbols and once with the numbers that they stand for.
//
// If the numbers are accepted, the symbols must be accepted too, and the
// resulting expressions must have the values that the numbers give. Attributes
// and contents are sometimes extreme: nothing may overflow or be read out of
// bounds.
#include <inttypes.h>

#include "graph/text_test.h"

enum { CASES = 60000, SYMBOLS = 5, MAX_IN = 9, MAX_OUT = 4, MAX_LIST = 6 };

static const int64_t values[SYMBOLS] = {1, 2, 3, 4, 6};

typedef struct setup {
  uint64_t seed;
  lb_graph *g;
  lb_dim symbol[SYMBOLS];
  lb_vinfo sym[MAX_IN], num[MAX_IN];
  lb_node *node;
} setup;

static uint32_t below(setup *s, uint32_t n) {
  s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(s->seed >> 33) % n;
}

static int64_t small_or_extreme(setup *s) {
  static const int64_t wild[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT64_MIN + 1,
                                 (int64_t)1 << 47};
  if (below(s, 24) == 0) return wild[below(s, 5)];
  return (int64_t)below(s, 10) - 3;
}

// A size, as a number and, half of the time, as a symbol of that value.
static void random_dim(setup *s, lb_dim *sym, lb_dim *num) {
  uint32_t i = below(s, SYMBOLS);
  *num = lb_dim_const(values[i]);
  *sym = below(s, 2) ? s->symbol[i] : *num;
  if (below(s, 16) == 0) *sym = *num = lb_dim_const(below(s, 2) ? 0 : 12);
}

static void random_contents(setup *s, lb_vinfo *sym, lb_vinfo *num) {
  int n = num->rank == 0 ? 1 : (int)num->dims[0].k;
  lb_dim *a = lb_arena_new(&s->g->arena, lb_dim, (size_t)n + 1);
  lb_dim *b = lb_arena_new(&s->g->arena, lb_dim, (size_t)n + 1);
  for (int i = 0; i < n; i++) {
    uint32_t k = below(s, SYMBOLS);
    bool size = below(s, 2) != 0;
    b[i] = lb_dim_const(size ? values[k] : small_or_extreme(s));
    a[i] = size && below(s, 2) ? s->symbol[k] : b[i];
    if (num->dtype == LB_BOOL) a[i] = b[i] = lb_dim_const(b[i].k > 1);
  }
  sym->known = a;
  num->known = b;
  sym->n_known = num->n_known = n;
}

// Inputs mostly share dtype and dims with the first one, so that rules get past
// their first checks.
static void random_input(setup *s, int i) {
  static const lb_dtype types[] = {LB_F32, LB_I64, LB_BOOL, LB_I32, LB_U8};
  lb_vinfo *sym = &s->sym[i], *num = &s->num[i];
  *num = (lb_vinfo){.dtype = types[below(s, 3) ? below(s, 2) : below(s, 5)]};
  if (i > 0 && below(s, 3) == 0) {
    *sym = s->sym[below(s, (uint32_t)i)];
    *num = s->num[sym - s->sym];
    for (int k = 0; k < i; k++)
      if (memcmp(sym, &s->sym[k], sizeof *sym) == 0) *num = s->num[k];
    return;
  }
  bool list = num->dtype != LB_F32 && below(s, 2);
  num->rank = (int)below(s, list ? 2 : 5);
  *sym = *num;
  for (int d = 0; d < num->rank; d++)
    random_dim(s, &sym->dims[d], &num->dims[d]);
  if (list && num->rank == 1) sym->dims[0] = num->dims[0];
  if (list) random_contents(s, sym, num);
}

// Mostly the lengths that windows over the first input's spatial dims need.
static uint32_t random_length(setup *s, const char *list) {
  int rank = s->node->n_in ? s->num[0].rank : 0;
  if (rank < 3 || below(s, 4) == 0) return below(s, MAX_LIST);
  uint32_t n_spatial = (uint32_t)rank - 2;
  return strcmp(list, "pads") == 0 ? 2 * n_spatial : n_spatial;
}

static void random_attrs(setup *s) {
  static const char *const ints[] = {
      "axis",        "keepdims",    "to",         "group",
      "ceil_mode",   "blocksize",   "allowzero",  "transA",
      "start",       "end",         "batch_dims", "num_outputs",
      "hidden_size", "q_num_heads", "layout",     "kv_num_heads",
      "onesided",    "num_groups",  "num_heads",  "block_size"};
  static const char *const lists[] = {
      "kernel_shape", "strides",     "pads",           "dilations",
      "perm",         "axes",        "output_padding", "shape",
      "output_shape", "pooled_shape"};
  static const char *const modes[] = {"SAME_UPPER", "VALID", "NOTSET"};
  for (uint32_t i = 0; i < sizeof ints / sizeof *ints; i++)
    if (below(s, 3) == 0)
      must(lb_node_set_int(s->g, s->node, ints[i], small_or_extreme(s)));
  for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    if (below(s, 3)) continue;
    int64_t *v = lb_arena_new(&s->g->arena, int64_t, MAX_LIST);
    for (int k = 0; k < MAX_LIST; k++)
      v[k] = below(s, 4) ? below(s, 4) : small_or_extreme(s);
    lb_attr a = {
        lists[i], LB_ATTR_INTS, random_length(s, lists[i]), {.ints = v}};
    must(lb_node_add_attr(s->g, s->node, a));
  }
  if (below(s, 3) == 0)
    must(lb_node_set_str(s->g, s->node, "auto_pad", modes[below(s, 3)]));
  must(lb_node_set_str(s->g, s->node, "equation", "...ij,jk->...ik"));
}

static bool is_unknown(lb_dim d) {  // contains a symbol without a value
  lb_strbuf buf = {0};
  lb_dim_print(d, &buf);
  bool open = strchr(lb_strbuf_str(&buf), '?') != NULL;
  lb_strbuf_fini(&buf);
  return open;
}

// A pool larger than its input, by less than a stride, pools the whole input;
// only its symbolic dim is 0 there (rules_window.c).
static bool is_overhanging_pool(lb_op op, int64_t sym, int64_t num) {
  bool pool = op == LB_OP_AveragePool || op == LB_OP_LpPool;
  return (pool || op == LB_OP_MaxPool) && sym == 0 && num == 1;
}

static bool agrees(lb_op op, lb_dim sym, lb_dim num) {
  int64_t v;
  if (is_unknown(sym)) return true;
  return lb_dim_try_eval(sym, values, SYMBOLS, &v) &&
         (v == num.k || is_overhanging_pool(op, v, num.k));
}

static bool outputs_agree(lb_op op, const lb_vinfo *sym, const lb_vinfo *num) {
  if (sym->dtype != num->dtype) return false;
  if (sym->rank >= 0 && num->rank >= 0) {
    if (sym->rank != num->rank) return false;
    for (int d = 0; d < sym->rank; d++)
      if (!agrees(op, sym->dims[d], num->dims[d])) return false;
  }
  if (!sym->known || !num->known) return true;
  if (sym->n_known != num->n_known) return false;
  for (int k = 0; k < sym->n_known; k++)
    if (!agrees(op, sym->known[k], num->known[k])) return false;
  return true;
}

static void report(const setup *s, lb_status st) {
  lb_strbuf buf = {0};
  lb_graph_dump(s->g, &buf);
  print_error("%s\n%s\n", lb_strbuf_str(&buf), lb_status_message(st));
  for (uint32_t i = 0; i < s->node->n_in; i++) {
    print_error("  input %u: %s", i, lb_dtype_name(s->num[i].dtype));
    for (int d = 0; d < s->num[i].rank; d++)
      print_error(" %" PRId64 "%s", s->num[i].dims[d].k,
                  lb_dim_is_const(s->sym[i].dims[d]) ? "" : "'");
    for (int d = 0; d < s->num[i].n_known; d++)
      print_error(" <%" PRId64 "%s>", s->num[i].known[d].k,
                  lb_dim_is_const(s->sym[i].known[d]) ? "" : "'");
    print_error("\n");
  }
  lb_strbuf_fini(&buf);
  fail_msg("%s: symbols and numbers disagree", lb_op_infos[s->node->op].name);
}

// With numbers an output has no rank if contents are missing; then the rule has
// not checked everything.
static bool all_ranked(const setup *s, const lb_vinfo *out) {
  for (uint32_t o = 0; o < s->node->n_out; o++)
    if (out[o].rank < 0) return false;
  return true;
}

static void check(setup *s) {
  lb_vinfo sym[MAX_OUT], num[MAX_OUT];
  lb_infer cn = {s->node, NULL, &s->g->arena, s->num, num};
  lb_infer cs = {s->node, s->g->syms, &s->g->arena, s->sym, sym};
  lb_status sn = lb_infer_node(&cn), ss = lb_infer_node(&cs);
  if (!lb_failed(sn) && all_ranked(s, num)) {
    if (lb_failed(ss)) report(s, ss);
    for (uint32_t o = 0; o < s->node->n_out; o++)
      if (!outputs_agree(s->node->op, &sym[o], &num[o])) report(s, sn);
  }
  lb_status_drop(sn);
  lb_status_drop(ss);
}

static void run_case(uint64_t seed) {
  static const char *const names[] = {"one", "two", "three", "four", "six"};
  setup s = {.seed = seed};
  below(&s, 2);
  const lb_op_info *op;
  lb_op id;
  do {
    id = (lb_op)below(&s, LB_OP_COUNT);
    op = &lb_op_infos[id];
  } while (op->cls == LB_CLASS_CONTROL);
  must(lb_graph_new(&s.g));
  for (int i = 0; i < SYMBOLS; i++)
    must(lb_symtab_named(s.g->syms, names[i], &s.symbol[i]));
  int max_in = op->max_in < 0 ? 3 : op->max_in;
  int n_in = op->min_in + (int)below(&s, (uint32_t)(max_in - op->min_in + 1));
  uint32_t n_out = op->max_out < 0 ? 1 + below(&s, 3) : (uint32_t)op->max_out;
  must(lb_node_new(s.g->main, id, NULL, (uint32_t)n_in, n_out, &s.node));
  for (int i = 0; i < n_in; i++) random_input(&s, i);
  random_attrs(&s);
  check(&s);
  lb_graph_free(s.g);
}

static void symbols_and_numbers_agree(void **state) {
  (void)state;
  for (uint64_t i = 0; i < CASES; i++) run_case(i * 0x9e3779b97f4a7c15u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(symbols_and_numbers_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
