// lower/lower.c -- one function a form, between a checked spec and a checked
// kernel.
#include "lower/lower.h"

#include <stdio.h>
#include <string.h>

#include "lower/emit.h"

// Tiles leave registers for a row of b and a broadcast of a, of 32 or 16.
const lb_lower_target lb_lower_targets[] = {
    {.level = "x86-64-v4", .lanes = 16, .tile_rows = 6, .tile_cols = 64},
    {.level = "x86-64-v4+fp256",
     .lanes = 16,
     .tile_rows = 6,
     .tile_cols = 64,
     .halves = true},
    {.level = "x86-64-v3", .lanes = 8, .tile_rows = 6, .tile_cols = 16},
    {.level = "x86-64-v2", .lanes = 4, .tile_rows = 2, .tile_cols = 16},
    {.level = NULL},
};

const lb_lower_target *lb_lower_target_find(const char *level) {
  for (const lb_lower_target *t = lb_lower_targets; t->level; t++)
    if (strcmp(t->level, level) == 0) return t;
  return NULL;
}

typedef struct form {
  const char *name;
  void (*emit)(lb_emit *e);
} form;

static const form forms[LB_FORM_COUNT] = {
    [LB_FORM_MAP] = {"map", lb_emit_map},
    [LB_FORM_ROWS] = {"rows", lb_emit_rows},
    [LB_FORM_MATMUL] = {"matmul", lb_emit_matmul},
    [LB_FORM_ATTENTION] = {"attention", lb_emit_attention},
    [LB_FORM_CONV] = {"conv", lb_emit_matmul},
    [LB_FORM_WINDOW] = {"window", lb_emit_window},
};

// The same spec and facts have the same name: it is what profilers show.
static void name_kernel(const lb_emit *e, char *out) {
  uint64_t h = lb_hash(e->spec, lb_spec_bytes(e->spec));
  h = lb_hash_seeded(e->facts, sizeof *e->facts, h);
  snprintf(out, LB_K_NAME, "limber_%s_%016llx", forms[e->spec->form].name,
           (unsigned long long)h);
}

lb_status lb_lower(const lb_spec *spec, const lb_facts *facts,
                   const lb_lower_target *target, lb_kernel *out) {
  char name[LB_K_NAME];
  *out = (lb_kernel){0};
  LB_TRY(lb_spec_verify(spec));
  LB_TRY(lb_facts_verify(facts));
  if (target->lanes != 4 && target->lanes != 8 && target->lanes != 16)
    return lb_error(LB_UNSUPPORTED,
                    "lower: vectors of %u lanes; 4, 8 and 16 "
                    "are supported",
                    target->lanes);
  lb_emit e = {.spec = spec, .facts = facts, .target = target};
  e.lanes = target->lanes;
  name_kernel(&e, name);
  lb_kbuild_init(&e.b, name);
  lb_emit_begin(&e);
  forms[spec->form].emit(&e);
  LB_TRY(lb_kernel_finish(&e.b, out));
  lb_status st = lb_kernel_simplify(out);
  if (lb_failed(st)) lb_kernel_fini(out);
  return st;
}
