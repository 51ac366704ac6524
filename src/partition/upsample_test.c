// partition/upsample_test.c -- a Resize that repeats pixels, and its reader.
#include "graph/build_test.h"
#include "graph/infer.h"
#include "partition/partition.h"
#include "partition/weights.h"

typedef struct fixture {
  lb_graph *g;
  lb_partitioning p;
  lb_node *resize;
  lb_value *x, *z, *y;    // y = Resize(x) - z
  lb_tensor tensors[16];  // by value id
  int64_t channels;
} fixture;

static lb_weights packed;  // of the only fixture

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  *out = ((fixture *)user)->tensors[v->id];
  return LB_OK;
}

static fixture begin_with(int64_t channels, const char *coords,
                          const char *mode, float scale) {
  fixture f = {.channels = channels};
  ok(lb_graph_new(&f.g));
  lb_region *r = f.g->main;
  float *list = lb_arena_alloc(&f.g->arena, 4 * sizeof *list, 64);
  list[0] = list[3] = 1, list[1] = list[2] = scale;
  lb_tensor t = tensor(LB_F32, list, DIMS(4));
  lb_value *scales;
  ok(lb_const_new(f.g, "scales", &t, &scales));
  f.x = param(r, "x", LB_F32, DIMS(-1, -1, -1, channels));
  f.z = param(r, "z", LB_F32, DIMS(-1, -1, -1, channels));
  f.resize =
      node(r, LB_OP_Resize, "re", 3, (lb_value *[]){f.x, NULL, scales}, 1);
  ok(lb_node_set_str(f.g, f.resize, "coordinate_transformation_mode", coords));
  ok(lb_node_set_str(f.g, f.resize, "nearest_mode", mode));
  f.y = NODE1(r, Add, "add", f.resize->out[0], NODE1(r, Neg, "neg", f.z));
  RESULTS(r, f.y);
  ok(lb_infer_graph(f.g));
  ok(lb_weights_init(&packed, lb_device_none()));
  ok(lb_partitioning_init(&f.p, f.g, &(lb_partition_options){0}, &packed));
  return f;
}

static fixture begin(const char *coords, const char *mode, float scale) {
  return begin_with(8, coords, mode, scale);
}

static bool bind(fixture *f, int64_t height, int64_t width, int64_t scale,
                 lb_binding *out) {
  bool bound;
  lb_tensor big =
      tensor(LB_F32, NULL, DIMS(2, height * scale, width * scale, f->channels));
  f->tensors[f->x->id] =
      tensor(LB_F32, NULL, DIMS(2, height, width, f->channels));
  f->tensors[f->resize->out[0]->id] = big;
  f->tensors[f->y->id] = f->tensors[f->z->id] = big;
  ok(lb_partition_bind(f->p.parts[0], tensor_fn, f, out, &bound));
  return bound;
}

static void end(fixture *f) {
  lb_partitioning_fini(&f->p);
  lb_weights_fini(&packed);
  lb_graph_free(f->g);
}

// Loops are lines, then the repetitions of a line and of a pixel.
static void readers_access_each_pixel_several_times(void **state) {
  (void)state;
  fixture f = begin("asymmetric", "floor", 3);
  lb_binding b;
  assert_int_equal(f.p.parts[0]->n_nodes, 3);
  assert_true(bind(&f, 5, 20, 3, &b));
  assert_int_equal(b.dims[LB_DIM_ROWS], 20);
  assert_int_equal(b.dims[LB_DIM_COLS], 8);
  assert_int_equal(b.n_outer, 3);
  int64_t loops[] = {10, 3, 3}, y[] = {3 * 480, 480, 8}, x[] = {160, 0, 0};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(b.outer[i], loops[i]);
    assert_int_equal(b.operands[0].outer[i], y[i]);
    assert_int_equal(b.operands[1].outer[i], x[i]);
    assert_int_equal(b.operands[2].outer[i], y[i]);
  }
  assert_ptr_equal(b.operands[1].value, f.x);
  assert_int_equal(b.operands[1].row, 8);
  assert_int_equal(b.operands[0].row, 24);
  end(&f);
}

// Pixels of a line are rows if there are enough, although there are more lines.
static void rows_are_contiguous(void **state) {
  (void)state;
  fixture f = begin_with(32, "asymmetric", "floor", 2);
  lb_binding b;
  assert_true(bind(&f, 40, 32, 2, &b));
  assert_int_equal(b.dims[LB_DIM_ROWS], 32);
  assert_int_equal(b.operands[1].row, 32);
  assert_true(bind(&f, 40, 31, 2, &b));
  assert_int_equal(b.dims[LB_DIM_ROWS], 80);
  end(&f);
}

static void sizes_that_are_not_multiples_are_not_bound(void **state) {
  (void)state;
  fixture f = begin("half_pixel", "round_prefer_floor", 2);
  lb_binding b;
  assert_true(bind(&f, 5, 4, 2, &b));
  assert_false(bind(&f, 5, 4, 3, &b));  // the scales are 2
  f.tensors[f.y->id].dims[1] = 11;
  bool bound;
  ok(lb_partition_bind(f.p.parts[0], tensor_fn, &f, &b, &bound));
  assert_false(bound);
  end(&f);
}

// These compute input o / scale with other roundings.
static void other_roundings_are_not_upsampling(void **state) {
  (void)state;
  const char *modes[][2] = {{"asymmetric", "ceil"},
                            {"asymmetric", "round_prefer_floor"},
                            {"half_pixel", "floor"},
                            {"tf_half_pixel_for_nn", "round_prefer_floor"},
                            {"align_corners", "floor"}};
  for (int i = 0; i < 5; i++) {
    fixture f = begin(modes[i][0], modes[i][1], 2);
    assert_null(f.p.of_node[f.resize->id]);
    end(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(readers_access_each_pixel_several_times),
      cmocka_unit_test(rows_are_contiguous),
      cmocka_unit_test(sizes_that_are_not_multiples_are_not_bound),
      cmocka_unit_test(other_roundings_are_not_upsampling),
  };
  return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
