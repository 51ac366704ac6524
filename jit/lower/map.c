// lower/map.c -- each output element from the input elements at its place.
//
// Rows, then columns: vectors in groups of four, and a tail under masks. What
// does not change along a row is computed before it.
#include "lower/lowering.h"

void lb_lower_map(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_lower_all(e);
  lb_kval row =
      lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS], lb_k_i64(b, 1));
  lb_lower_row(e, row);
  lb_lower_columns(e);
  lb_lower_row_stores(e);
  lb_k_end(b);
}
