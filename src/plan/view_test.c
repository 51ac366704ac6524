// plan/view_test.c -- random reshapes, transposes and slices of random strided
// tensors: a view visits the same elements as a copy.
#include "plan/view.h"

#include <stdlib.h>

#include "graph/build_test.h"

static int64_t offset_of(const lb_tensor *t, int64_t flat) {
  int64_t at = 0;
  for (int i = t->rank; i-- > 0; flat /= t->dims[i])
    at += flat % t->dims[i] * t->strides[i];
  return at;
}

static unsigned draw(unsigned *r, unsigned n) {
  return (unsigned)rand_r(r) % n;
}

// A dense tensor, perhaps with axes swapped or every second row skipped.
static lb_tensor strided(unsigned *r) {
  lb_tensor t = {.dtype = LB_F32, .rank = (int)draw(r, 4) + 1};
  for (int i = 0; i < t.rank; i++) t.dims[i] = (int64_t)draw(r, 4) + 1;
  lb_tensor_dense(&t);
  for (int pass = 0; pass < 2; pass++) {
    int a = (int)draw(r, (unsigned)t.rank), b = (int)draw(r, (unsigned)t.rank);
    int64_t d = t.dims[a], s = t.strides[a];
    t.dims[a] = t.dims[b], t.strides[a] = t.strides[b];
    t.dims[b] = d, t.strides[b] = s;
  }
  if (draw(r, 2)) t.strides[0] *= 2;
  return t;
}

// Other dims with the same product, at random.
static lb_tensor reshaped(const lb_tensor *t, unsigned *r) {
  lb_tensor o = {.dtype = t->dtype, .rank = (int)draw(r, 4) + 1};
  int64_t count = lb_tensor_count(t);
  for (int i = 0; i < o.rank; i++) o.dims[i] = 1;
  for (int64_t f = 2; count > 1;) {
    if (count % f) {
      f++;
      continue;
    }
    o.dims[draw(r, (unsigned)o.rank)] *= f;
    count /= f;
  }
  return o;
}

#define MAX_IN 5

// Asks the rule of n and applies its answer. `contents` has one element for
// each input: the tensor, or NULL.
static bool try_view(const lb_node *n, const lb_tensor *const *contents,
                     const lb_tensor *from, uint32_t index, lb_tensor *out,
                     int64_t *offset) {
  lb_skip_operand in[MAX_IN] = {
      {.dtype = from->dtype, .rank = from->rank, .sizes = from->dims}};
  lb_skip_operand outs[MAX_IN];
  for (uint32_t i = 1; i < n->n_in; i++) {
    const lb_tensor *t = contents ? contents[i] : NULL;
    in[i] = (lb_skip_operand){.rank = -1};
    if (t)
      in[i] = (lb_skip_operand){
          .dtype = t->dtype, .rank = t->rank, .sizes = t->dims, .data = t};
  }
  for (uint32_t i = 0; i < n->n_out; i++)
    outs[i] = (lb_skip_operand){
        .dtype = out->dtype, .rank = out->rank, .sizes = out->dims};
  lb_skip_query q = {n, in, outs, false};
  lb_proof proof;
  return lb_skip_ask(&q, &proof) >= LB_SKIP_VIEW &&
         lb_view_try(&q, &proof, from, index, out, offset);
}

static void a_reshaped_view_keeps_the_order_of_elements(void **state) {
  (void)state;
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_node *n =
      node(g->main, LB_OP_Reshape, "re", 2, (lb_value *[]){NULL, NULL}, 1);
  int views = 0;
  for (unsigned seed = 1; seed < 3000; seed++) {
    unsigned r = seed;
    lb_tensor t = strided(&r), o = reshaped(&t, &r);
    int64_t offset;
    if (!try_view(n, NULL, &t, 0, &o, &offset)) {
      assert_false(lb_tensor_is_dense(&t));
      continue;
    }
    views++;
    for (int64_t i = 0; i < lb_tensor_count(&t); i++)
      if (offset_of(&t, i) != offset + offset_of(&o, i))
        fail_msg("seed %u, element %d", seed, (int)i);
  }
  assert_true(views > 1000);
  lb_graph_free(g);
}

static void a_slice_starts_where_onnx_says(void **state) {
  (void)state;
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_node *n = node(g->main, LB_OP_Slice, "s", 5,
                    (lb_value *[]){NULL, NULL, NULL, NULL, NULL}, 1);
  struct {
    int64_t start, step, count, first;
  } cases[] = {{2, 1, 3, 2},          {-2, 1, 2, 3},        {-9, 2, 3, 0},
               {-1, -1, 5, 4},        {9, -2, 3, 4},        {-6, -1, 0, 0},
               {INT64_MAX, -1, 5, 4}, {INT64_MIN, 1, 5, 0}, {-6, -1, 1, 0},
               {INT64_MIN, -1, 1, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_tensor x = tensor(LB_F32, NULL, DIMS(5));
    lb_tensor start = tensor(LB_I64, &cases[i].start, DIMS(1));
    lb_tensor step = tensor(LB_I64, &cases[i].step, DIMS(1));
    lb_tensor end = tensor(LB_I64, &cases[i].start, DIMS(1));  // not read
    const lb_tensor *in[5] = {NULL, &start, &end, NULL, &step};
    lb_tensor o = tensor(LB_F32, NULL, 1, &cases[i].count);
    int64_t offset;
    assert_true(try_view(n, in, &x, 0, &o, &offset));
    assert_int_equal(offset, cases[i].first);
    if (cases[i].count > 1) assert_int_equal(o.strides[0], cases[i].step);
  }
  lb_graph_free(g);
}

static void gather_of_one_element_is_a_view(void **state) {
  (void)state;
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_node *n =
      node(g->main, LB_OP_Gather, "g", 2, (lb_value *[]){NULL, NULL}, 1);
  for (unsigned seed = 1; seed < 1000; seed++) {
    unsigned r = seed;
    lb_tensor x = strided(&r), o = {.dtype = LB_F32};
    int axis = (int)draw(&r, (unsigned)x.rank), flat = (int)draw(&r, 2);
    int64_t dim = x.dims[axis], at = (int64_t)draw(&r, (unsigned)dim), offset;
    int64_t index = draw(&r, 2) ? at : at - dim;
    lb_tensor one = tensor(LB_I64, &index, flat ? 1 : 0, (int64_t[]){1});
    const lb_tensor *in[2] = {NULL, &one};
    for (int i = 0; i < x.rank; i++)
      if (i != axis || flat) o.dims[o.rank++] = i == axis ? 1 : x.dims[i];
    ok(lb_node_set_int(g, n, "axis", draw(&r, 2) ? axis : axis - x.rank));
    assert_true(try_view(n, in, &x, 0, &o, &offset));
    lb_tensor want = x;
    want.dims[axis] = 1;
    for (int64_t i = 0; i < lb_tensor_count(&o); i++)
      if (offset_of(&want, i) + at * x.strides[axis] !=
          offset + offset_of(&o, i))
        fail_msg("seed %u, element %d", seed, (int)i);
    index = draw(&r, 2) ? dim : -dim - 1;
    assert_false(try_view(n, in, &x, 0, &o, &offset));
  }
  lb_graph_free(g);
}

// Split's sizes are Expand(2): one element in memory, broadcast to three.
static void strided_contents_are_read_by_their_strides(void **state) {
  (void)state;
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_node *n =
      node(g->main, LB_OP_Split, "s", 2, (lb_value *[]){NULL, NULL}, 3);
  int64_t two = 2, offset;
  lb_tensor x = tensor(LB_F32, NULL, DIMS(6));
  lb_tensor sizes = tensor(LB_I64, &two, DIMS(3));
  sizes.strides[0] = 0;
  const lb_tensor *in[2] = {NULL, &sizes};
  for (uint32_t i = 0; i < 3; i++) {
    lb_tensor o = tensor(LB_F32, NULL, DIMS(2));
    assert_true(try_view(n, in, &x, i, &o, &offset));
    assert_int_equal(offset, 2 * i);
  }
  lb_graph_free(g);
}

// Where part `i` of a Split starts, in elements of x along the axis.
static void part_begins(lb_node *n, const lb_tensor *const *in,
                        const lb_tensor *x, uint32_t i, int axis, int64_t size,
                        int64_t begin) {
  int64_t offset;
  lb_tensor o = *x;
  o.dims[axis] = size;
  assert_true(try_view(n, in, x, i, &o, &offset));
  assert_int_equal(offset, begin * x->strides[axis]);
  for (int k = 0; k < x->rank; k++)
    assert_int_equal(o.strides[k], x->strides[k]);
}

static void parts_of_an_uneven_split_are_adjacent(void **state) {
  (void)state;
  static const int64_t evenly[][4] = {
      {9, 3, 3, 3}, {7, 3, 3, 1}, {8, 3, 3, 2}, {4, 2, 2, 0}, {2, 1, 1, 0}};
  int64_t listed[] = {1, 4, 2};
  lb_graph *g;
  ok(lb_graph_new(&g));
  lb_node *n =
      node(g->main, LB_OP_Split, "s", 2, (lb_value *[]){NULL, NULL}, 3);
  lb_tensor sizes = tensor(LB_I64, listed, DIMS(3));
  const lb_tensor *in[2] = {NULL};
  for (int axis = 0; axis < 2; axis++) {
    ok(lb_node_set_int(g, n, "axis", axis ? -1 : 0));
    lb_tensor x = tensor(LB_F32, NULL, DIMS(7, 7));
    int64_t begin = 0;
    in[1] = &sizes;
    for (uint32_t i = 0; i < 3; begin += listed[i++])
      part_begins(n, in, &x, i, axis, listed[i], begin);
    in[1] = NULL;  // even parts, the last one smaller
    for (size_t k = 0; k < sizeof evenly / sizeof *evenly; k++) {
      const int64_t *dim = evenly[k], *size = dim + 1;
      x = tensor(LB_F32, NULL, DIMS(*dim, *dim));
      begin = 0;
      for (uint32_t i = 0; i < 3; begin += size[i++])
        part_begins(n, in, &x, i, axis, size[i], begin);
    }
  }
  lb_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_reshaped_view_keeps_the_order_of_elements),
      cmocka_unit_test(a_slice_starts_where_onnx_says),
      cmocka_unit_test(gather_of_one_element_is_a_view),
      cmocka_unit_test(strided_contents_are_read_by_their_strides),
      cmocka_unit_test(parts_of_an_uneven_split_are_adjacent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
