// bench/tune.c -- Measures every possible tile size of a model's kernels.
//
//   tune MODEL INPUT=DIMxDIM...     prints a line of JSON for each kernel with
//                                   tiles: the time of each tile size, and the
//                                   one that src/spec/choose.c chooses
//
// The tables there are right where the chosen tile is nearly as fast as the
// fastest. LIMBER_ISA is honoured.
#include <stdio.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/subject.h"

#define TILE_SECONDS 0.02
#define MAX_TILES 128
#define MAX_HEIGHT 16
#define MAX_WIDTH 8  // in vectors

typedef struct tuner {
  bench_machine machine;
  bench_subject subject;
} tuner;

typedef struct tiles {
  const lb_slot *list[MAX_TILES];
  int n;
} tiles;

static uint32_t lanes_of(const tuner *t) {
  return t->subject.session->session->options.slots->lanes;
}

// The facts of a kernel with another tile and the facts that follow from it.
static lb_facts with_tile(const lb_facts *chosen, int64_t n, int rows,
                          int cols) {
  lb_facts f = {0};
  for (int i = 0; i < LB_MAX_FACTS; i++) {
    const lb_sfact *s = &chosen->list[i];
    if (s->kind && !(cols && s->dim == LB_DIM_COLS))
      lb_facts_add(&f, (lb_sfact_kind)s->kind, (lb_sdim)s->dim, s->value);
  }
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, (uint16_t)rows);
  if (!cols) return f;
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_COLS, (uint16_t)cols);
  if (n % cols == 0)
    lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, (uint16_t)cols);
  if (n < cols)
    lb_facts_add(&f, LB_ASSUME_AT_MOST, LB_DIM_COLS, (uint16_t)cols);
  return f;
}

static lb_status add_tile(const tuner *t, const lb_slot *slot, int64_t n,
                          int rows, int cols, tiles *out) {
  lb_facts f = with_tile(&slot->key.facts, n, rows, cols);
  lb_slot *variant;
  if (out->n == MAX_TILES) return LB_OK;
  const lb_session_options *o = &t->subject.session->session->options;
  lb_slot_user user = {.bit = o->user};
  LB_TRY(lb_slots_intern(o->slots, user, &slot->key.spec, &f, &variant));
  out->list[out->n++] = variant;
  return LB_OK;
}

// A GEMM tile keeps rows x columns of accumulators in registers, besides a row
// of B and a broadcast of A; no tile is wider than all columns. With
// K2-interleaved panels a column takes two lanes.
static lb_status add_gemm_tiles(const tuner *t, const lb_launch *l,
                                tiles *out) {
  bool k2 = l->slot->key.spec.in[1].layout == LB_LAYOUT_PANEL_K2;
  int lanes = (int)lanes_of(t), registers = lanes == 16 ? 32 : 16;
  int64_t n = (int64_t)l->args[l->n_operands + LB_DIM_COLS];
  int cols = k2 ? lanes / 2 : lanes;
  for (int wide = 1; wide <= MAX_WIDTH; wide++)
    for (int rows = 1; rows <= MAX_HEIGHT; rows++)
      if (rows * wide + wide < registers && (wide - 1) * cols < n)
        LB_TRY(add_tile(t, l->slot, n, rows, wide * cols, out));
  return LB_OK;
}

static lb_status add_heights(const tuner *t, const lb_launch *l, tiles *out) {
  for (int rows = 1; rows <= MAX_HEIGHT; rows++)
    LB_TRY(add_tile(t, l->slot, 0, rows, 0, out));
  return LB_OK;
}

static lb_status list_tiles(const tuner *t, const lb_launch *l, tiles *out) {
  out->n = 0;
  switch (l->slot->key.spec.form) {
    case LB_FORM_MATMUL:
    case LB_FORM_CONV: return add_gemm_tiles(t, l, out);
    case LB_FORM_ATTENTION:
    case LB_FORM_WINDOW: return add_heights(t, l, out);
    default: return LB_OK;
  }
}

static void print_tile(const lb_slot *slot, double seconds, bool first) {
  const lb_facts *f = &slot->key.facts;
  printf("%s{\"rows\": %d, \"cols\": %d, \"best\": %.4g}", first ? "" : ", ",
         lb_facts_get(f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0),
         lb_facts_get(f, LB_CHOOSE_TILE, LB_DIM_COLS, 0), seconds);
}

static double time_tile(const bench_rotation *r, const lb_slot *slot) {
  return bench_time_kernel(r, lb_slot_kernel(slot), TILE_SECONDS);
}

// The chosen tile is measured first and last: the difference of its two times
// is the noise.
static lb_status tune(tuner *t, const lb_launch *l, int count) {
  bench_rotation r;
  tiles some;
  LB_TRY(list_tiles(t, l, &some));
  if (!some.n) return LB_OK;
  LB_TRY(bench_subject_settle(&t->subject));
  LB_TRY(bench_subject_rotation(&t->subject, l, t->machine.caches.l2, &r));
  printf("{");
  bench_print_spec(l->slot);
  bench_print_dims(l);
  printf("\"count\": %d, \"tiles\": [", count);
  print_tile(l->slot, time_tile(&r, l->slot), true);
  for (int i = 0; i < some.n; i++)
    if (some.list[i] != l->slot && lb_slot_kernel(some.list[i]))
      print_tile(some.list[i], time_tile(&r, some.list[i]), false);
  print_tile(l->slot, time_tile(&r, l->slot), false);
  printf("]}\n");
  fflush(stdout);
  bench_rotation_fini(&r);
  return LB_OK;
}

static lb_status run(tuner *t, int argc, char **argv) {
  LB_TRY(bench_machine_init(&t->machine));
  LB_TRY(bench_subject_open(&t->subject, argv[1], argv + 2, argc - 2));
  LB_TRY(bench_subject_settle(&t->subject));
  const lb_plan *plan = t->subject.plan;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *step = &plan->steps[i];
    if (step->kind != LB_STEP_LAUNCH || !lb_slot_kernel(step->launch->slot))
      continue;
    int count = bench_subject_count(&t->subject, i);
    if (count) LB_TRY(tune(t, step->launch, count));
    i += step->skip;
  }
  return LB_OK;
}

int main(int argc, char **argv) {
  static tuner t;
  if (argc < 2) {
    fprintf(stderr, "usage: tune MODEL INPUT=DIMxDIM...\n");
    return 2;
  }
  lb_status st = run(&t, argc, argv);
  bool failed = lb_failed(st);
  if (failed) fprintf(stderr, "tune: %s\n", lb_status_message(st));
  lb_status_drop(st);
  return failed;
}
