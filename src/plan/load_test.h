// plan/load_test.h -- loads a graph as a program, for tests.
#ifndef LB_PLAN_LOAD_TEST_H
#define LB_PLAN_LOAD_TEST_H

#include "device/cpu/device.h"
#include "graph/build_test.h"
#include "graph/infer.h"
#include "graph/skip.h"
#include "partition/weights.h"
#include "plan/plan.h"

// A program with all objects that it borrows.
typedef struct loaded {
  lb_graph *g;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_weights weights;
  lb_program *prog;
} loaded;

// Runs shape inference on the graph. `pack` may be NULL.
static void load(loaded *l, lb_graph *g, const lb_pack *pack,
                 bool deterministic) {
  l->g = g;
  ok(lb_infer_graph(g));
  ok(lb_mark_runtime_skippable_nodes(g));
  lb_cpu_device_init(&l->cpu, pack, false, NULL);
  ok(lb_slots_init(&l->slots, 8, &l->cpu.base));
  ok(lb_weights_init(&l->weights, &l->cpu.base));
  ok(lb_program_new(&(lb_program_options){.graph = g,
                                          .version = 1,
                                          .slots = &l->slots,
                                          .weights = &l->weights,
                                          .deterministic = deterministic,
                                          .user = {.ahead = LB_AHEAD_ALL}},
                    &l->prog));
}

static void unload(loaded *l) {
  lb_program_release(l->prog);
  lb_weights_fini(&l->weights);
  lb_slots_fini(&l->slots);
  lb_graph_free(l->g);
}

#endif
