// spec/choose.c -- from sizes to facts.
//
// What gains is the shape of a product's tile and code without remainders; that
// sizes are constants gains nothing. So rows are mapped to a few tiles, and
// columns to whether they divide.
#include "spec/spec.h"

// A tile of `rows` has a second one of a row less beside it, so the table need
// not name every number. Tiles fill the registers: 32 of 16 lanes, else 16.
typedef struct tiling {
  uint32_t lanes;
  uint16_t most;  // rows, when there are many
  struct {
    uint16_t rows, cols;
  } few[5];  // the first whose rows suffice; {0}: none, take blocks of `most`
} tiling;

static const tiling tilings[] = {
    {16, 6, {{1, 128}, {2, 64}, {4, 64}, {6, 64}, {0, 64}}},
    {8, 6, {{1, 64}, {2, 32}, {4, 16}, {6, 16}, {0, 16}}},
    {4, 2, {{1, 32}, {2, 16}, {0, 16}}},
};

static const tiling *tiling_of(uint32_t lanes) {
  const tiling *t = tilings;
  while (t->lanes > lanes && t->lanes > 4) t++;
  return t;
}

// Lanes of what is summed: float64 fills a register with half as many.
static uint32_t sum_lanes(const lb_spec *s, uint32_t lanes) {
  for (int i = 0; i < s->n_nodes; i++)
    if (s->nodes[i].op == LB_S_ACC && lb_dtype_size(s->nodes[i].dtype) > 4)
      return lanes / 2;
  return lanes;
}

// As few blocks as there can be, evenly high.
static uint16_t even_rows(int64_t rows, int64_t most) {
  int64_t blocks = rows / most + (rows % most != 0);
  return (uint16_t)(rows / blocks + (rows % blocks != 0));
}

static void choose_tile(const tiling *t, const int64_t *dims, lb_facts *out) {
  int i = 0;
  while (t->few[i].rows && t->few[i].rows < dims[LB_DIM_ROWS]) i++;
  uint16_t rows = t->few[i].rows, cols = t->few[i].cols;
  if (!rows) rows = even_rows(dims[LB_DIM_ROWS], t->most);
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_COLS, cols);
  if (dims[LB_DIM_COLS] % cols == 0)
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_COLS, cols);
}

// Tiles of attention: rows, smallest first. Of the two largest the one that
// leaves fewer rows over.
static uint16_t attention_rows(uint32_t lanes, int64_t rows) {
  static const uint16_t tiles[][4] = {
      {1, 4, 8, 12}, {1, 3, 4, 6}, {1, 1, 1, 2}};
  const uint16_t *t = tiles[lanes == 16 ? 0 : lanes == 8 ? 1 : 2];
  for (int i = 0; i < 3; i++)
    if (rows <= t[i]) return t[i];
  int64_t over_less = (t[2] - rows % t[2]) % t[2];
  int64_t over_most = (t[3] - rows % t[3]) % t[3];
  return over_less < over_most ? t[2] : t[3];
}

// Larger heads have no facts, and no kernel.
static void choose_attention(uint32_t lanes, const int64_t *dims,
                             lb_facts *out) {
  uint16_t k = 32;
  while (k < 256 && k < dims[LB_DIM_K]) k *= 2;
  if (k >= dims[LB_DIM_K]) lb_facts_add(out, LB_ASSUME_AT_MOST, LB_DIM_K, k);
  if (dims[LB_DIM_K] % 32 == 0 && dims[LB_DIM_COLS] % 32 == 0) {
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_K, 32);
    lb_facts_add(out, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 32);
  }
  lb_facts_add(out, LB_CHOOSE_TILE, LB_DIM_ROWS,
               attention_rows(lanes, dims[LB_DIM_ROWS]));
}

lb_facts lb_facts_of(const lb_spec *s, uint32_t lanes,
                     const int64_t dims[LB_SDIMS]) {
  lb_facts f = {0};
  if (s->form == LB_FORM_MATMUL || s->form == LB_FORM_CONV)
    choose_tile(tiling_of(sum_lanes(s, lanes)), dims, &f);
  else if (s->form == LB_FORM_ATTENTION)
    choose_attention(sum_lanes(s, lanes), dims, &f);
  else if (dims[LB_DIM_COLS] % LB_SPEC_LANES == 0)
    lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, LB_SPEC_LANES);
  return f;
}
