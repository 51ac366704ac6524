// lower/lower.c -- Verifies a spec, calls the function of its form, and
// finishes and simplifies the kernel.
#include "lower/lower.h"

#include <stdio.h>

#include "lower/lowering.h"

// Tiles leave registers for a row of b and a broadcast of a, out of 32 (V4) or
// 16.
lb_lower_tile lb_lower_tile_of(const lb_target *t) {
  if (t->level >= LB_LEVEL_V4) return (lb_lower_tile){6, 64};
  return (lb_lower_tile){t->level >= LB_LEVEL_V3 ? 6 : 2, 16};
}

typedef struct form {
  const char *name;
  void (*emit)(lb_lowering *e);
} form;

static const form forms[LB_FORM_COUNT] = {
    [LB_FORM_ELTWISE] = {"eltwise", lb_lower_eltwise},
    [LB_FORM_ROW_REDUCE] = {"row_reduce", lb_lower_row_reduce},
    [LB_FORM_MATMUL] = {"matmul", lb_lower_matmul},
    [LB_FORM_ATTENTION] = {"attention", lb_lower_attention},
    [LB_FORM_CONV] = {"conv", lb_lower_matmul},
    [LB_FORM_WINDOW] = {"window", lb_lower_window},
};

// Equal specs and facts give equal names; profilers show this name.
static void name_kernel(const lb_lowering *e, char *out) {
  uint64_t h = lb_hash(e->spec, lb_spec_bytes(e->spec));
  h = lb_hash_seeded(e->facts, sizeof *e->facts, h);
  snprintf(out, LB_K_NAME, "limber_%s_%016llx", forms[e->spec->form].name,
           (unsigned long long)h);
}

lb_status lb_lower(const lb_spec *spec, const lb_facts *facts,
                   const lb_target *target, lb_kernel *out) {
  char name[LB_K_NAME];
  *out = (lb_kernel){0};
  LB_TRY(lb_spec_verify(spec));
  LB_TRY(lb_facts_verify(facts));
  lb_lowering e = {.spec = spec,
                   .facts = facts,
                   .target = target,
                   .lanes = lb_target_lanes(target)};
  name_kernel(&e, name);
  lb_kbuild_init(&e.b, name);
  lb_lower_begin(&e);
  forms[spec->form].emit(&e);
  LB_TRY(lb_kernel_finish(&e.b, out));
  lb_status st = lb_kernel_simplify(out);
  if (lb_failed(st)) lb_kernel_fini(out);
  return st;
}
