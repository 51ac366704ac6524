// partition/interpolate_test.c -- Resize with interpolation.
#include "partition/interpolate.h"

#include "graph/build_test.h"
#include "graph/infer.h"
#include "partition/weights.h"

typedef struct fixture {
  lb_graph *g;
  lb_partitioning p;
  lb_value *x, *y;  // y = Relu(Resize(x))
  lb_node *resize;
  lb_tensor tensors[16];  // by value id
} fixture;

static lb_weights packed;  // of the only fixture

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  *out = ((fixture *)user)->tensors[v->id];
  return LB_OK;
}

// Resizes [batch, height, width, 8] by these scales.
static fixture begin(const char *mode, float down, float along, float last) {
  fixture f = {0};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  float *list = lb_arena_alloc(&f.g->arena, 4 * sizeof *list, 64);
  list[0] = 1, list[1] = down, list[2] = along, list[3] = last;
  lb_tensor t = tensor(LB_F32, list, DIMS(4));
  lb_value *scales;
  ok(lb_const_new(f.g, "scales", &t, &scales));
  f.x = param(r, "x", LB_F32, DIMS(-1, -1, -1, 8));
  f.resize =
      node(r, LB_OP_Resize, "re", 3, (lb_value *[]){f.x, NULL, scales}, 1);
  ok(lb_node_set_str(f.g, f.resize, "mode", mode));
  ok(lb_node_set_str(f.g, f.resize, "coordinate_transformation_mode",
                     "asymmetric"));
  f.y = NODE1(r, Relu, "relu", f.resize->out[0]);
  RESULTS(r, f.y);
  ok(lb_infer_graph(f.g));
  ok(lb_weights_init(&packed, lb_device_none()));
  ok(lb_partitioning_init(&f.p, f.g, &(lb_partition_options){0}, &packed));
  return f;
}

static bool bind(fixture *f, lb_tensor x, lb_tensor y, lb_binding *out) {
  bool bound;
  f->tensors[f->x->id] = x;
  f->tensors[f->resize->out[0]->id] = f->tensors[f->y->id] = y;
  ok(lb_partition_bind(f->p.parts[0], tensor_fn, f, out, &bound));
  return bound;
}

static void end(fixture *f) {
  lb_partitioning_fini(&f->p);
  lb_weights_fini(&packed);
  lb_graph_free(f->g);
}

enum { X = 1, TABLES };

// Rows are the pixels of a line; lines and batch are loops around the kernel.
static void pixels_are_gathered_by_tables(void **state) {
  (void)state;
  fixture f = begin("linear", 2, 2, 1);
  lb_binding b;
  lb_tensor x = tensor(LB_F32, NULL, DIMS(2, 3, 5, 8));
  assert_true(bind(&f, x, tensor(LB_F32, NULL, DIMS(2, 6, 10, 8)), &b));
  assert_int_equal(f.p.parts[0]->n_nodes, 2);
  assert_int_equal(b.dims[LB_DIM_ROWS], 10);
  assert_int_equal(b.dims[LB_DIM_COLS], 8);
  assert_int_equal(b.n_outer, 2);
  assert_int_equal(b.outer[0], 2);
  assert_int_equal(b.outer[1], 6);
  assert_int_equal(b.operands[X].row, 1);  // row offsets come from tables
  assert_int_equal(b.operands[X].outer[0], 3 * 5 * 8);
  assert_int_equal(b.operands[X].outer[1], 0);
  assert_int_equal(b.operands[TABLES].outer[1], 1);
  assert_int_equal(b.operands[TABLES].row, 0);
  assert_int_equal(b.operands[TABLES + 4].row, 1);
  assert_true(lb_spec_is_gathered(&b.spec, 0));
  assert_true(lb_spec_is_row_index(&b.spec, TABLES - 1));
  end(&f);
}

static void tables_contain_row_offsets_and_weights(void **state) {
  (void)state;
  fixture f = begin("linear", 1, 2, 1);
  lb_binding b;
  lb_tensor x = tensor(LB_F32, NULL, DIMS(1, 1, 2, 8));
  assert_true(bind(&f, x, tensor(LB_F32, NULL, DIMS(1, 1, 4, 8)), &b));
  assert_int_equal(b.table_bytes, 2 * 4 * (8 + 4));
  struct {
    int64_t places[2][4];
    float weights[2][4];
  } got;
  lb_partition_fill_tables(&b, &got);
  // Pixels are at 0, 0.5, 1 and 1.5; at an integer position one weight is 1.
  const int64_t places[2][4] = {{0, 0, 0, 8}, {0, 8, 8, 8}};
  const float weights[2][4] = {{0, 0.5f, 0, 0.5f}, {1, 0.5f, 1, 0.5f}};
  assert_memory_equal(got.places, places, sizeof places);
  assert_memory_equal(got.weights, weights, sizeof weights);
  assert_int_equal(b.operands[TABLES + 1].offset, 4);
  assert_int_equal(b.operands[TABLES + 3].offset, 2 * 8 + 4);
  end(&f);
}

// Contiguous axes that are not resized are merged into one row.
static void whole_lines_are_gathered(void **state) {
  (void)state;
  fixture f = begin("cubic", 3, 1, 1);
  lb_binding b;
  lb_tensor x = tensor(LB_F32, NULL, DIMS(2, 3, 5, 8));
  assert_true(bind(&f, x, tensor(LB_F32, NULL, DIMS(2, 9, 5, 8)), &b));
  assert_int_equal(b.dims[LB_DIM_ROWS], 9);
  assert_int_equal(b.dims[LB_DIM_COLS], 40);
  assert_int_equal(b.n_operands, 2 + 8);
  end(&f);
}

static bool binds(const char *mode, float down, float along, float last) {
  fixture f = begin(mode, down, along, last);
  lb_binding b;
  int64_t h = (int64_t)(4 * down), w = (int64_t)(4 * along);
  lb_tensor y = tensor(LB_F32, NULL, DIMS(1, h, w, (int64_t)(8 * last)));
  bool bound = bind(&f, tensor(LB_F32, NULL, DIMS(1, 4, 4, 8)), y, &b);
  end(&f);
  return bound;
}

static void unsupported_modes_are_not_bound(void **state) {
  (void)state;
  assert_true(binds("linear", 0.5f, 1.5f, 1));
  assert_true(binds("linear", 1, 1, 1));
  assert_false(binds("linear", 1, 1, 2));  // elements of a row
  assert_false(binds("cubic", 2, 2, 1));   // too many tables
}

// A sum with a larger tensor, whose dims are known at run time only.
static void larger_readers_are_not_bound(void **state) {
  (void)state;
  fixture f = begin("linear", 0.5f, 2, 1);
  lb_binding b;
  bool bound;
  assert_true(bind(&f, tensor(LB_F32, NULL, DIMS(2, 2, 4, 8)),
                   tensor(LB_F32, NULL, DIMS(2, 1, 8, 8)), &b));
  f.tensors[f.y->id].dims[1] = 2;
  ok(lb_partition_bind(f.p.parts[0], tensor_fn, &f, &b, &bound));
  assert_false(bound);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pixels_are_gathered_by_tables),
      cmocka_unit_test(tables_contain_row_offsets_and_weights),
      cmocka_unit_test(whole_lines_are_gathered),
      cmocka_unit_test(unsupported_modes_are_not_bound),
      cmocka_unit_test(larger_readers_are_not_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
