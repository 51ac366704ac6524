// partition/weights_test.c -- a constant is packed once for each way in which
// it is read, however many partitionings and nodes read it.
#include "partition/weights.h"

#include "graph/text_test.h"

typedef struct fixture {
  lb_graph *g;
  lb_weights weights;
  lb_partitioning p;
} fixture;

static void begin(fixture *f, const char *source) {
  f->g = graph_of(source);
  must(lb_infer_graph(f->g));
  must(lb_weights_init(&f->weights, lb_device_none()));
  must(lb_partitioning_init(&f->p, f->g, &(lb_partition_options){0},
                            &f->weights));
}

static void end(fixture *f) {
  lb_partitioning_fini(&f->p);
  lb_weights_fini(&f->weights);
  lb_graph_free(f->g);
}

static const lb_partition *part_of(const lb_partitioning *p, const lb_graph *g,
                                   const char *name) {
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_value *v = g->values[i];
    if (v->producer && strcmp(v->name, name) == 0)
      return p->of_node[v->producer->id];
  }
  return NULL;
}

static void partitionings_share_packed_weights(void **state) {
  (void)state;
  fixture f;
  lb_partitioning other;
  begin(&f,
        "in x float32[n,4]\n"
        "const w float32[4,4] 1 2 3 -4 5 6 -7 8 9\n"
        "p = MatMul(x, w)\n"
        "y = Relu(p)\n"
        "out y\n");
  const lb_partition *fused = part_of(&f.p, f.g, "p");
  assert_int_equal(f.weights.packings, 1);
  size_t bytes = f.weights.bytes;
  assert_int_equal(fused->n_nodes, 2);
  uint32_t p = fused->nodes[0]->out[0]->id;
  must(lb_partitioning_init(
      &other, f.g, &(lb_partition_options){.barriers = &p, .n_barriers = 1},
      &f.weights));
  assert_int_equal(part_of(&other, f.g, "p")->n_nodes, 1);
  assert_int_equal(part_of(&other, f.g, "y")->n_nodes, 1);
  assert_ptr_equal(part_of(&other, f.g, "p")->packed, fused->packed);
  assert_int_equal(f.weights.packings, 1);
  assert_int_equal(f.weights.bytes, bytes);
  // Packed weights do not belong to the partitioning that packed them.
  lb_partitioning_fini(&f.p);
  assert_int_equal(((const float *)part_of(&other, f.g, "p")->packed)[1], 2);
  f.p = other;
  end(&f);
}

static int copies_left;  // of the device below, before one fails

static lb_status copy_or_fail(lb_stream *q, lb_copy how, void *to,
                              const void *from, size_t bytes) {
  if (copies_left-- == 0) return lb_error(LB_DEVICE, "the copy failed");
  return lb_host_memory_copy(q, how, to, from, bytes);
}

// A device with memory of its own, whose copies fail: weights that were not
// written are packed again, and those that were are not.
static void a_failed_copy_leaves_no_weights_behind(void **state) {
  (void)state;
  lb_device_ops ops = *lb_device_none()->ops;
  lb_device device = {.ops = &ops};
  ops.shares = false;
  ops.copy = copy_or_fail;
  lb_weights w;
  lb_partitioning p;
  lb_graph *g = graph_of(
      "in x float32[n,4]\n"
      "const a float32[4,4] 1 2 3 -4 5 6 -7 8 9\n"
      "const b float32[4,4] 9 2 3 -4 5 6 -7 8 1\n"
      "p = MatMul(x, a)\n"
      "y = MatMul(p, b)\n"
      "out y\n");
  must(lb_infer_graph(g));
  must(lb_weights_init(&w, &device));
  copies_left = 1;
  lb_status st = lb_partitioning_init(&p, g, &(lb_partition_options){0}, &w);
  assert_int_equal(lb_status_code(st), LB_DEVICE);
  lb_status_drop(st);
  assert_int_equal(w.packings, 1);
  copies_left = 1;
  must(lb_partitioning_init(&p, g, &(lb_partition_options){0}, &w));
  assert_int_equal(w.packings, 2);
  assert_true(((const float *)part_of(&p, g, "p")->packed)[0] == 1);
  assert_true(((const float *)part_of(&p, g, "y")->packed)[0] == 9);
  lb_partitioning_fini(&p);
  lb_weights_fini(&w);
  lb_graph_free(g);
}

static void one_constant_is_packed_for_each_way_of_reading(void **state) {
  (void)state;
  fixture f;
  begin(&f,
        "in x float32[n,4]\n"
        "const w float32[4,4] 1 2 3 -4 5 6 -7 8 9\n"
        "a = MatMul(x, w)\n"
        "b = MatMul(x, w)\n"
        "c = Gemm(x, w)\n"
        "d = Gemm(x, w) {transB=1}\n"
        "out a b c d\n");
  const void *a = part_of(&f.p, f.g, "a")->packed;
  const void *d = part_of(&f.p, f.g, "d")->packed;
  assert_ptr_equal(part_of(&f.p, f.g, "b")->packed, a);
  assert_ptr_equal(part_of(&f.p, f.g, "c")->packed, a);
  assert_ptr_not_equal(d, a);
  assert_int_equal(((const float *)a)[1], 2);
  assert_int_equal(((const float *)d)[1], 5);
  assert_int_equal(f.weights.packings, 2);
  end(&f);
}

static void windows_differ_in_how_they_read(void **state) {
  (void)state;
  fixture f;
  begin(&f,
        "in x float32[n,5,5,4]\n"
        "in z float32[n,5,5,8]\n"
        "const w float32[4,4,1,1] 1 2 3 -4 5 6 -7 8 9\n"
        "a = Conv(x, w) {channels_last=1}\n"
        "b = Conv(x, w) {channels_last=1 dilations=[2,2]}\n"
        "c = ConvTranspose(x, w) {channels_last=1}\n"
        "d = Conv(z, w) {channels_last=1 group=2}\n"
        "out a b c d\n");
  const void *a = part_of(&f.p, f.g, "a")->packed;
  const void *c = part_of(&f.p, f.g, "c")->packed;
  const void *d = part_of(&f.p, f.g, "d")->packed;
  assert_non_null(a);
  assert_ptr_equal(part_of(&f.p, f.g, "b")->packed, a);
  assert_ptr_not_equal(c, a);
  assert_ptr_not_equal(d, a);
  assert_ptr_not_equal(d, c);
  assert_int_equal(f.weights.packings, 3);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(partitionings_share_packed_weights),
      cmocka_unit_test(a_failed_copy_leaves_no_weights_behind),
      cmocka_unit_test(one_constant_is_packed_for_each_way_of_reading),
      cmocka_unit_test(windows_differ_in_how_they_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
