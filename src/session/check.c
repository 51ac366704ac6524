// session/check.c -- checks inputs against the model's declarations.
#include "session/check.h"

#include <inttypes.h>
#include <stdio.h>

// "[batch,3,?,?]"
static void print_declared(const lb_vinfo *info, lb_strbuf *out) {
  lb_strbuf_putc(out, '[');
  for (int i = 0; i < info->rank; i++) {
    if (i) lb_strbuf_putc(out, ',');
    lb_dim_print(info->dims[i], out);
  }
  lb_strbuf_putc(out, ']');
}

static lb_status mismatch(const lb_value *v, const lb_tensor *t,
                          const char *what) {
  lb_strbuf want = {0};
  char got[128];
  print_declared(&v->info, &want);
  lb_status st = lb_error(LB_INVALID, "input '%s': %s: expected %s%s, got %s%s",
                          v->name, what, lb_dtype_name(v->info.dtype),
                          v->info.rank < 0 ? "" : lb_strbuf_str(&want),
                          lb_dtype_name(t->dtype),
                          lb_dims_print(t->rank, t->dims, got, sizeof got));
  lb_strbuf_fini(&want);
  return st;
}

// The first input with this dim and its size there, to compare others with.
static const lb_value *first_with(const lb_graph *g, lb_dim d,
                                  const lb_tensor *inputs, int64_t *size) {
  for (uint32_t i = 0; i < g->main->n_params; i++) {
    const lb_value *v = g->main->params[i];
    for (int k = 0; k < v->info.rank; k++) {
      if (!lb_dim_equal(v->info.dims[k], d)) continue;
      *size = inputs[i].dims[k];
      return v;
    }
  }
  return NULL;
}

static lb_status check_dim(const lb_graph *g, const lb_tensor *inputs,
                           uint32_t i, int k) {
  const lb_value *v = g->main->params[i];
  lb_dim d = v->info.dims[k];
  int64_t got = inputs[i].dims[k], other = 0;
  if (lb_dim_is_const(d)) {
    if (d.k == got) return LB_OK;
    char what[64];
    snprintf(what, sizeof what, "dim %d must be %" PRId64 ", not %" PRId64, k,
             d.k, got);
    return mismatch(v, &inputs[i], what);
  }
  const lb_value *first = first_with(g, d, inputs, &other);
  if (!first || other == got) return LB_OK;
  lb_strbuf name = {0};
  lb_dim_print(d, &name);
  lb_status st =
      lb_error(LB_INVALID, "`%s`: %" PRId64 " from `%s`, %" PRId64 " from `%s`",
               lb_strbuf_str(&name), other, first->name, got, v->name);
  lb_strbuf_fini(&name);
  return st;
}

static lb_status check_input(const lb_graph *g, const lb_tensor *inputs,
                             uint32_t i) {
  const lb_value *v = g->main->params[i];
  const lb_tensor *t = &inputs[i];
  if (v->info.dtype != LB_NONE && v->info.dtype != t->dtype)
    return mismatch(v, t, "wrong type");
  int64_t count;
  lb_status st = lb_dims_count(t->rank, t->dims, &count);
  if (lb_failed(st)) return lb_status_note(st, "input '%s'", v->name);
  if (v->info.rank >= 0 && v->info.rank != t->rank)
    return mismatch(v, t, "wrong rank");
  return LB_OK;
}

lb_status lb_check_inputs(const lb_graph *g, const lb_tensor *inputs) {
  for (uint32_t i = 0; i < g->main->n_params; i++)
    LB_TRY(check_input(g, inputs, i));
  for (uint32_t i = 0; i < g->main->n_params; i++)
    for (int k = 0; k < g->main->params[i]->info.rank; k++)
      LB_TRY(check_dim(g, inputs, i, k));
  return LB_OK;
}
