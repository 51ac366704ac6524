// plan/window.c -- results that are written to strided memory of the caller.
//
// A *window* is caller memory with strides: part of a larger buffer. A launch
// writes its output there if its kernel can, as with the buffer of a Concat
// (concat.c); the output of a reference kernel is dense, and is copied at the
// end.
#include <assert.h>

#include "plan/planner.h"
#include "plan/view.h"

// The model's name of an output, which may differ from the value's.
static const char *name_of(const lb_planner *p, uint32_t result) {
  const lb_graph *g = p->prog->graph;
  return p->region == g->main && g->output_names
             ? g->output_names[result]
             : p->region->results[result]->name;
}

static lb_status refuse(const lb_planner *p, uint32_t result,
                        const lb_tensor *t, const char *why) {
  const lb_want *w = &p->results.want[result];
  char dims[160], strides[300];
  return lb_error(LB_INVALID, "output '%s' of %s%s: strides %s %s",
                  name_of(p, result), lb_dtype_name(t->dtype),
                  lb_dims_print(t->rank, t->dims, dims, sizeof dims),
                  lb_dims_print(w->rank, w->strides, strides, sizeof strides),
                  why);
}

lb_status lb_planner_window(lb_planner *p, uint32_t result, const lb_tensor *t,
                            lb_tensor *out, bool *found) {
  const lb_want *w = &p->results.want[result];
  size_t bytes, before;
  *found = false;
  if (!w->strides) return LB_OK;
  if (w->rank != t->rank) return refuse(p, result, t, "have another rank");
  lb_tensor window = *t;
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] > 1 && w->strides[i] < 0)
      return refuse(p, result, t,
                    "are negative, which is not allowed for outputs");
    window.strides[i] = w->strides[i];
  }
  lb_status st = lb_tensor_reach(&window, &bytes, &before);
  if (lb_failed(st))
    return lb_status_note(st, "output '%s'", name_of(p, result));
  if (!lb_tensor_is_nonoverlapping(&window))
    return refuse(p, result, t, "give several elements the same address");
  *out = window;
  *found = true;
  return LB_OK;
}

// Finds the window that v, which is `t` when dense, may be written to, and the
// view of v in it. The views between the two keep the order of elements.
static lb_status find(lb_planner *p, const lb_value *v, const lb_tensor *t,
                      lb_tensor *whole, lb_tensor *view, bool *found) {
  uint32_t i = lb_planner_result_of(p, v, t);
  *found = false;
  if (!i || p->results.claimed[i - 1] || !p->results.want[i - 1].strides)
    return LB_OK;
  const lb_value *result = p->region->results[i - 1];
  *whole = *view = *t;
  if (result != v && !(p->dims.exact && lb_planner_expect(p, result, whole)))
    return LB_OK;
  LB_TRY(lb_planner_window(p, i - 1, whole, whole, found));
  *found = *found && lb_view_reshape_strides(whole, view);
  return LB_OK;
}

lb_status lb_planner_find_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, lb_tensor *out,
                                 bool *found) {
  lb_tensor whole;
  return find(p, v, t, &whole, out, found);
}

lb_status lb_planner_take_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, uint32_t *result) {
  lb_tensor whole, view;
  bool found;
  LB_TRY(find(p, v, t, &whole, &view, &found));
  assert(found);
  *result = lb_planner_result_of(p, v, t) - 1;
  p->results.claimed[*result] = true;
  return lb_planner_bind(p, *result, &whole);
}
