// device/reference/nms.c -- NonMaxSuppression: of boxes that overlap much, the
// best.
#include <string.h>

#include "device/reference/move.h"
#include "device/reference/order.h"

typedef struct box {
  float x0, x1, y0, y1;  // x0 <= x1, y0 <= y1, unless the size is negative
} box;

typedef struct nms {
  int64_t batches, classes, boxes;
  int64_t most;  // boxes to select per class
  float overlap, score;
  bool scored;  // whether there is a least score
  const lb_f32 *scores;
  box *box;         // of all batches
  uint64_t *keys;   // of one class's scores, from the last box to the first
  int64_t *rivals;  // those that reach the score: a heap, the best on top
  int64_t *chosen;  // boxes of all classes, one after the other
  int64_t *counts;  // how many of each class
} nms;

static float lesser(float a, float b) { return a < b ? a : b; }
static float greater(float a, float b) { return a > b ? a : b; }

static box make_box(const lb_f32 *v, bool center) {
  if (center)
    return (box){v[0] - v[2] / 2, v[0] + v[2] / 2, v[1] - v[3] / 2,
                 v[1] + v[3] / 2};
  return (box){lesser(v[1], v[3]), greater(v[1], v[3]), lesser(v[0], v[2]),
               greater(v[0], v[2])};
}

// Whether the boxes' intersection, over their union, is above the threshold.
static bool overlap(const box *a, const box *b, float threshold) {
  float w = lesser(a->x1, b->x1) - greater(a->x0, b->x0);
  float h = lesser(a->y1, b->y1) - greater(a->y0, b->y0);
  if (!(w > 0 && h > 0)) return false;
  float both = w * h;
  float first = (a->x1 - a->x0) * (a->y1 - a->y0);
  float second = (b->x1 - b->x0) * (b->y1 - b->y0);
  float all = first + second - both;
  return first > 0 && second > 0 && all > 0 && both / all > threshold;
}

// -- rivals -------------------------------------------------------------------

// Boxes of one class that reach the score: few of them are asked for, so they
// are not sorted. Counted from the last box, the first of equals is on top.
static int64_t find_rivals(nms *s, const lb_f32 *scores) {
  int64_t n = 0;
  for (int64_t i = 0; i < s->boxes; i++) {
    const lb_f32 *score = &scores[s->boxes - 1 - i];
    if (s->scored && !(*score > s->score)) continue;
    lb_order_keys(LB_F32, 1, score, sizeof *score, &s->keys[i]);
    s->rivals[n++] = i;
  }
  lb_order_heap(s->keys, s->rivals, n);
  return n;
}

static int64_t take_best(nms *s, int64_t *n) {
  int64_t best = s->boxes - 1 - s->rivals[0];
  s->rivals[0] = s->rivals[--*n];
  if (*n > 0) lb_order_sink(s->keys, s->rivals, *n, 0);
  return best;
}

// Returns how many it put into `chosen`.
static int64_t choose(nms *s, const box *boxes, int64_t n, int64_t *chosen) {
  int64_t count = 0;
  while (n > 0 && count < s->most) {
    int64_t best = take_best(s, &n);
    bool free = true;
    for (int64_t k = 0; k < count && free; k++)
      free = !overlap(&boxes[best], &boxes[chosen[k]], s->overlap);
    if (free) chosen[count++] = best;
  }
  return count;
}

// -- the operator -------------------------------------------------------------

static lb_status nms_scratch(lb_reference_call *c, nms *s) {
  int64_t classes = s->batches * s->classes;
  LB_TRY(lb_reference_table(c, classes, &s->counts));
  LB_TRY(lb_reference_table(c, classes * s->most, &s->chosen));
  LB_TRY(lb_reference_table(c, s->boxes, &s->rivals));
  s->keys = lb_arena_new(c->scratch, uint64_t, (size_t)s->boxes);
  s->box = lb_arena_new(c->scratch, box, (size_t)(s->batches * s->boxes));
  return s->box && s->keys ? LB_OK : lb_oom();
}

static lb_status nms_read(lb_reference_call *c, nms *s) {
  const lb_tensor *boxes = &c->in[0], *scores = &c->in[1];
  if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
      boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
    return lb_error(LB_INVALID,
                    "boxes must be [batches, boxes, 4], scores [batches, "
                    "classes, boxes]");
  double threshold, least;
  const int64_t *most;
  int64_t n;
  LB_TRY(lb_reference_ints(c, 2, &most, &n));
  LB_TRY(lb_reference_scalar(c, 3, 0, &threshold));
  LB_TRY(lb_reference_scalar(c, 4, 0, &least));
  *s = (nms){.batches = boxes->dims[0],
             .classes = scores->dims[1],
             .boxes = boxes->dims[1],
             .most = n > 0 && most[0] > 0 ? most[0] : 0,
             .overlap = (float)threshold,
             .score = (float)least,
             .scored = lb_reference_has(c, 4)};
  if (s->most > s->boxes) s->most = s->boxes;
  return LB_OK;
}

static lb_status nms_write(lb_reference_call *c, const nms *s) {
  int64_t total = 0;
  int64_t classes = s->batches * s->classes;
  for (int64_t i = 0; i < classes; i++) total += s->counts[i];
  LB_TRY(c->grow(c, 0, 2, (int64_t[]){total, 3}));
  lb_i64 *out = c->out[0].data;
  const int64_t *chosen = s->chosen;
  for (int64_t i = 0; i < classes; i++) {
    for (int64_t k = 0; k < s->counts[i]; k++, out += 3) {
      out[0] = i / s->classes;
      out[1] = i % s->classes;
      out[2] = *chosen++;
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
    s->box[i] = make_box((const lb_f32 *)boxes.data + 4 * i, center);
  int64_t *chosen = s->chosen;
  for (int64_t i = 0; i < s->batches * s->classes; i++) {
    const lb_f32 *row = (const lb_f32 *)scores.data + i * s->boxes;
    int64_t n = find_rivals(s, row);
    s->counts[i] = choose(s, s->box + i / s->classes * s->boxes, n, chosen);
    chosen += s->counts[i];
  }
  return nms_write(c, s);
}

lb_status lb_reference_NonMaxSuppression(lb_reference_call *c) {
  nms s;
  LB_TRY(nms_read(c, &s));
  bool none = s.most == 0 || lb_tensor_count(&c->in[1]) == 0;
  if (none) return c->grow(c, 0, 2, (int64_t[]){0, 3});
  return nms_run(c, &s);
}
