// lower/map.c -- each output element from the input elements at its place.
//
// Rows, then columns: vectors in groups of four, and a tail under masks. What
// does not change along a row is computed before it.
#include "lower/emit.h"

void lb_emit_map(lb_emit *e) {
  lb_kbuilder *b = &e->b;
  lb_emit_all(e);
  lb_kval row =
      lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS], lb_k_i64(b, 1));
  lb_emit_row(e, row);
  lb_emit_columns(e);
  lb_emit_row_stores(e);
  lb_k_end(b);
}
