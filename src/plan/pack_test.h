// plan/pack_test.h -- kernel packs for tests. They are only looked up, never
// run.
#ifndef LB_PLAN_PACK_TEST_H
#define LB_PLAN_PACK_TEST_H

#include "graph/build_test.h"
#include "plan/plan.h"

enum { MAX_KERNELS = 4 };

typedef struct small_pack {
  lb_pack head;
  lb_pack_entry entries[MAX_KERNELS];
  lb_spec specs[MAX_KERNELS];
  uint8_t code[MAX_KERNELS];
} small_pack;

static void add_spec(small_pack *p, const lb_spec *s) {
  uint32_t n = p->head.n++, at = n;
  uint64_t hash = lb_hash(s, lb_spec_bytes(s));
  for (; at > 0 && p->entries[at - 1].hash > hash; at--)
    p->entries[at] = p->entries[at - 1];
  p->specs[n] = *s;
  p->entries[at] = (lb_pack_entry){
      .hash = hash,
      .spec = (uint32_t)(offsetof(small_pack, specs) + n * sizeof *s),
      .code = n};
}

// Adds a chain of operations on one input.
static void add_chain(small_pack *p, const lb_sop *ops, int n) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  for (int i = 0; i < n; i++) x = lb_spec_node(&b, ops[i], LB_F32, &x, 1);
  lb_spec_output(&b, x, LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  add_spec(p, &s);
}

#define ADD_CHAIN(p, ...)                 \
  add_chain((p), (lb_sop[]){__VA_ARGS__}, \
            (int)(sizeof((lb_sop[]){__VA_ARGS__}) / sizeof(lb_sop)))

static small_pack empty_pack(void) {
  small_pack p = {.head = {.magic = LB_PACK_MAGIC}};
  p.head.code = offsetof(small_pack, code);
  return p;
}

#endif
