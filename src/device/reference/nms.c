// device/reference/nms.c -- NonMaxSuppression: keeps the best of overlapping
// boxes.
#include <string.h>

#include "device/reference/move.h"
#include "device/reference/order.h"

typedef struct nms_box {
  float x0, x1, y0, y1;  // x0 <= x1, y0 <= y1, unless the size is negative
} nms_box;

typedef struct nms {
  int64_t batches, classes, boxes;
  int64_t max_boxes;  // maximum number of selected boxes per class
  float overlap, score;
  bool scored;  // whether there is a score threshold
  const lb_f32 *scores;
  nms_box *box;    // of all batches
  uint64_t *keys;  // of the scores of one class, from the last box to the first
  // A heap of boxes above the score threshold, best on top.
  int64_t *candidates;
  int64_t *selected;  // selected boxes of all classes, concatenated
  int64_t *counts;    // number of selected boxes per class
} nms;

static float min(float a, float b) { return a < b ? a : b; }
static float max(float a, float b) { return a > b ? a : b; }

static nms_box box_of(const lb_f32 *v, bool center) {
  if (center)
    return (nms_box){v[0] - v[2] / 2, v[0] + v[2] / 2, v[1] - v[3] / 2,
                     v[1] + v[3] / 2};
  return (nms_box){min(v[1], v[3]), max(v[1], v[3]), min(v[0], v[2]),
                   max(v[0], v[2])};
}

// Returns whether the intersection over union of two boxes is above the
// threshold.
static bool overlap(const nms_box *a, const nms_box *b, float threshold) {
  float w = min(a->x1, b->x1) - max(a->x0, b->x0);
  float h = min(a->y1, b->y1) - max(a->y0, b->y0);
  if (!(w > 0 && h > 0)) return false;
  float both = w * h;
  float first = (a->x1 - a->x0) * (a->y1 - a->y0);
  float second = (b->x1 - b->x0) * (b->y1 - b->y0);
  float all = first + second - both;
  return first > 0 && second > 0 && all > 0 && both / all > threshold;
}

// -- candidates --------------------------------------------------------------

// Collects the boxes of one class above the score threshold in a heap, because
// few of them are needed in order. Boxes are numbered from the last, so that
// the first of equal ones is on top.
static int64_t find_candidates(nms *s, const lb_f32 *scores) {
  int64_t n = 0;
  for (int64_t i = 0; i < s->boxes; i++) {
    const lb_f32 *score = &scores[s->boxes - 1 - i];
    if (s->scored && !(*score > s->score)) continue;
    lb_order_keys(LB_F32, 1, score, sizeof *score, &s->keys[i]);
    s->candidates[n++] = i;
  }
  lb_order_heap(s->keys, s->candidates, n);
  return n;
}

static int64_t pop_best(nms *s, int64_t *n) {
  int64_t best = s->boxes - 1 - s->candidates[0];
  s->candidates[0] = s->candidates[--*n];
  if (*n > 0) lb_order_sink(s->keys, s->candidates, *n, 0);
  return best;
}

// Returns the number of boxes written to `chosen`.
static int64_t select_boxes(nms *s, const nms_box *boxes, int64_t n,
                            int64_t *selected) {
  int64_t count = 0;
  while (n > 0 && count < s->max_boxes) {
    int64_t best = pop_best(s, &n);
    bool is_free = true;
    for (int64_t k = 0; k < count && is_free; k++)
      is_free = !overlap(&boxes[best], &boxes[selected[k]], s->overlap);
    if (is_free) selected[count++] = best;
  }
  return count;
}

// -- the operator ------------------------------------------------------------

static lb_status nms_scratch(lb_reference_call *c, nms *s) {
  int64_t classes = s->batches * s->classes;
  LB_TRY(lb_reference_ints_temp(c, classes, &s->counts));
  LB_TRY(lb_reference_ints_temp(c, classes * s->max_boxes, &s->selected));
  LB_TRY(lb_reference_ints_temp(c, s->boxes, &s->candidates));
  s->keys = lb_arena_new(c->scratch, uint64_t, (size_t)s->boxes);
  s->box = lb_arena_new(c->scratch, nms_box, (size_t)(s->batches * s->boxes));
  return s->box && s->keys ? LB_OK : lb_oom();
}

static lb_status nms_read(lb_reference_call *c, nms *s) {
  const lb_tensor *boxes = &c->in[0], *scores = &c->in[1];
  if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
      boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
    return lb_error(LB_INVALID,
                    "boxes must be [batches, boxes, 4], scores [batches, "
                    "classes, boxes]");
  double threshold, min_score;
  const int64_t *max_boxes;
  int64_t n;
  LB_TRY(lb_reference_ints(c, 2, &max_boxes, &n));
  LB_TRY(lb_reference_scalar(c, 3, 0, &threshold));
  LB_TRY(lb_reference_scalar(c, 4, 0, &min_score));
  *s = (nms){.batches = boxes->dims[0],
             .classes = scores->dims[1],
             .boxes = boxes->dims[1],
             .max_boxes = n > 0 && max_boxes[0] > 0 ? max_boxes[0] : 0,
             .overlap = (float)threshold,
             .score = (float)min_score,
             .scored = lb_reference_has(c, 4)};
  if (s->max_boxes > s->boxes) s->max_boxes = s->boxes;
  return LB_OK;
}

static lb_status nms_write(lb_reference_call *c, const nms *s) {
  int64_t total = 0;
  int64_t classes = s->batches * s->classes;
  for (int64_t i = 0; i < classes; i++) total += s->counts[i];
  LB_TRY(c->grow(c, 0, 2, (int64_t[]){total, 3}));
  lb_i64 *out = c->out[0].data;
  const int64_t *selected = s->selected;
  for (int64_t i = 0; i < classes; i++) {
    for (int64_t k = 0; k < s->counts[i]; k++, out += 3) {
      out[0] = i / s->classes;
      out[1] = i % s->classes;
      out[2] = *selected++;
    }
  }
  return LB_OK;
}

static lb_status nms_run(lb_reference_call *c, nms *s) {
  lb_tensor boxes, scores;
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F32, &boxes));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F32, &scores));
  LB_TRY(nms_scratch(c, s));
  bool center = lb_attr_int(c->node, "center_point_box", 0) != 0;
  for (int64_t i = 0; i < s->batches * s->boxes; i++)
    s->box[i] = box_of((const lb_f32 *)boxes.data + 4 * i, center);
  int64_t *selected = s->selected;
  for (int64_t i = 0; i < s->batches * s->classes; i++) {
    const lb_f32 *row = (const lb_f32 *)scores.data + i * s->boxes;
    int64_t n = find_candidates(s, row);
    s->counts[i] =
        select_boxes(s, s->box + i / s->classes * s->boxes, n, selected);
    selected += s->counts[i];
  }
  return nms_write(c, s);
}

lb_status lb_reference_NonMaxSuppression(lb_reference_call *c) {
  nms s;
  LB_TRY(nms_read(c, &s));
  bool none = s.max_boxes == 0 || lb_tensor_count(&c->in[1]) == 0;
  if (none) return c->grow(c, 0, 2, (int64_t[]){0, 3});
  return nms_run(c, &s);
}
