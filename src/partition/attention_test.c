// partition/attention_test.c -- Attention nodes as kernels: strides of q, k, v
// and masks of any rank, and which nodes run their reference kernel.
#include "partition/attention.h"

#include "graph/build_test.h"
#include "graph/infer.h"

typedef struct fixture {
  lb_graph *g;
  lb_value *q, *k, *v, *mask, *y;
  lb_tensor tensors[16];  // by value id
} fixture;

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  *out = ((fixture *)user)->tensors[v->id];
  return LB_OK;
}

static void set(fixture *f, const lb_value *v, int rank, const int64_t *dims) {
  f->tensors[v->id] = tensor(v->info.dtype, NULL, rank, dims);
}

// q, k and v of rank 4 and any dims; mask_dtype LB_NONE: no mask.
static void begin(fixture *f, int rank, lb_dtype mask_dtype) {
  *f = (fixture){0};
  int64_t any[] = {-1, -1, -1, -1};
  ok(lb_graph_new(&f->g));
  lb_region *r = f->g->main;
  f->q = param(r, "q", LB_F32, rank, any);
  f->k = param(r, "k", LB_F32, rank, any);
  f->v = param(r, "v", LB_F32, rank, any);
  if (mask_dtype != LB_NONE) f->mask = param(r, "m", mask_dtype, 4, any);
  f->y = f->mask ? NODE1(r, Attention, "y", f->q, f->k, f->v, f->mask)
                 : NODE1(r, Attention, "y", f->q, f->k, f->v);
  RESULTS(r, f->y);
}

static void set_all(fixture *f, const int64_t *q, const int64_t *k) {
  set(f, f->q, 4, q);
  set(f, f->k, 4, k);
  set(f, f->v, 4, k);
  set(f, f->y, 4, q);
}

static bool bind(fixture *f, lb_binding *out) {
  const lb_node *n = f->y->producer;
  lb_partition p = {.form = LB_FORM_ATTENTION, .nodes = &n, .n_nodes = 1};
  bool bound;
  assert_true(lb_attention_is(n));
  ok(lb_attention_bind(&p, tensor_fn, f, out, &bound));
  return bound;
}

static void assert_spec(const lb_binding *b, const char *want) {
  lb_strbuf text = {0};
  lb_spec_print(&b->spec, &text);
  assert_string_equal(lb_strbuf_str(&text), want);
  lb_strbuf_fini(&text);
}

#define FACTORS                                            \
  "attention %0=input.float32.full %1=input.float32.full " \
  "%2=input.float32.full "

// q is a transposed view of [2, 5, 4, 8]: batch 2, 4 heads, 5 rows of 8.
static void views_are_bound_with_their_strides(void **state) {
  (void)state;
  fixture f;
  lb_binding b;
  begin(&f, 4, LB_NONE);
  set_all(&f, (int64_t[]){2, 4, 5, 8}, (int64_t[]){2, 4, 7, 8});
  f.tensors[f.q->id].strides[1] = 8;
  f.tensors[f.q->id].strides[2] = 32;
  assert_true(bind(&f, &b));
  assert_spec(&b, FACTORS
              "%3=scalar.float32 %4=acc.float32 "
              "%5=mul.float32(%3,%4) -> %5.full");
  int64_t dims[] = {5, 8, 8, 7}, outer[] = {2, 4, 1};
  assert_memory_equal(b.dims, dims, sizeof dims);
  assert_memory_equal(b.outer, outer, sizeof outer);
  assert_int_equal(b.n_operands, 4);
  int64_t q[] = {160, 8, 8}, k[] = {224, 56, 56};
  assert_int_equal(b.operands[1].row, 32);
  assert_memory_equal(b.operands[1].outer, q, sizeof q);
  assert_int_equal(b.operands[2].row, 8);
  assert_memory_equal(b.operands[2].outer, k, sizeof k);
  f.tensors[f.k->id].strides[3] = 2;
  assert_false(bind(&f, &b));
  lb_graph_free(f.g);
}

static void heads_of_k_and_v_are_shared(void **state) {
  (void)state;
  fixture f;
  lb_binding b;
  begin(&f, 4, LB_F32);
  set_all(&f, (int64_t[]){1, 6, 5, 8}, (int64_t[]){1, 2, 7, 8});
  set(&f, f.mask, DIMS(1, 6, 1, 7));
  assert_true(bind(&f, &b));
  int64_t outer[] = {1, 2, 3}, k[] = {112, 56, 0}, q[] = {240, 120, 40};
  int64_t mask[] = {0, 21, 7};
  assert_memory_equal(b.outer, outer, sizeof outer);
  assert_memory_equal(b.operands[1].outer, q, sizeof q);
  assert_memory_equal(b.operands[3].outer, k, sizeof k);
  assert_memory_equal(b.operands[4].outer, mask, sizeof mask);
  assert_int_equal(b.operands[4].row, 0);
  assert_spec(&b, FACTORS
              "%3=input.float32.per_col %4=scalar.float32 "
              "%5=acc.float32 %6=mul.float32(%4,%5) "
              "%7=add.float32(%3,%6) -> %7.full");
  lb_graph_free(f.g);
}

static void bool_masks_select_scores(void **state) {
  (void)state;
  fixture f;
  lb_binding b;
  begin(&f, 4, LB_BOOL);
  set_all(&f, (int64_t[]){1, 1, 5, 8}, (int64_t[]){1, 1, 7, 8});
  set(&f, f.mask, DIMS(1, 1, 5, 7));
  assert_true(bind(&f, &b));
  assert_spec(&b, FACTORS
              "%3=input.bool.full %4=scalar.float32 "
              "%5=scalar.float32 %6=acc.float32 "
              "%7=mul.float32(%4,%6) "
              "%8=select.float32(%3,%7,%5) -> %8.full");
  assert_int_equal(b.scalars[1], 0xff800000u);
  lb_graph_free(f.g);
  begin(&f, 4, LB_BOOL);  // a finite number instead of -inf
  ok(lb_node_set_float(f.g, f.y->producer, "masked", -2));
  set_all(&f, (int64_t[]){1, 1, 5, 8}, (int64_t[]){1, 1, 7, 8});
  set(&f, f.mask, DIMS(1, 1, 5, 7));
  assert_true(bind(&f, &b));
  assert_int_equal(b.scalars[1], 0xc0000000u);
  set(&f, f.mask, DIMS(1, 1, 5, 6));  // the mask is one key too short
  assert_false(bind(&f, &b));
  lb_graph_free(f.g);
}

static void rows_of_rank_3_contain_all_heads(void **state) {
  (void)state;
  fixture f;
  lb_binding b;
  begin(&f, 3, LB_NONE);
  lb_node *n = f.y->producer;
  ok(lb_node_set_int(f.g, n, "q_num_heads", 4));
  ok(lb_node_set_int(f.g, n, "kv_num_heads", 4));
  set(&f, f.q, DIMS(2, 5, 32));
  set(&f, f.k, DIMS(2, 7, 32));
  set(&f, f.v, DIMS(2, 7, 48));
  set(&f, f.y, DIMS(2, 5, 48));
  assert_true(bind(&f, &b));
  int64_t dims[] = {5, 12, 8, 7}, v[] = {336, 12, 12};
  assert_memory_equal(b.dims, dims, sizeof dims);
  assert_memory_equal(b.operands[3].outer, v, sizeof v);
  assert_int_equal(b.operands[3].row, 48);
  lb_graph_free(f.g);
}

static void unsupported_shapes_are_not_bound(void **state) {
  (void)state;
  static const int64_t sizes[][2][4] = {
      {{1, 1, 5, 257}, {1, 1, 7, 257}},  // head too large
      {{1, 1, 5, 8}, {1, 1, 0, 8}},      // no keys
      {{1, 1, 0, 8}, {1, 1, 7, 8}},      // no queries
      {{0, 1, 5, 8}, {0, 1, 7, 8}},
  };
  fixture f;
  lb_binding b;
  begin(&f, 4, LB_NONE);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    set_all(&f, sizes[i][0], sizes[i][1]);
    assert_false(bind(&f, &b));
  }
  lb_node *n = f.y->producer;
  ok(lb_node_set_int(f.g, n, "is_causal", 1));
  assert_false(lb_attention_is(n));
  lb_graph_free(f.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(views_are_bound_with_their_strides),
      cmocka_unit_test(heads_of_k_and_v_are_shared),
      cmocka_unit_test(bool_masks_select_scores),
      cmocka_unit_test(rows_of_rank_3_contain_all_heads),
      cmocka_unit_test(unsupported_shapes_are_not_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
