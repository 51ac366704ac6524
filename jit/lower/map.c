// lower/map.c -- The ELTWISE form: each output element is computed from the
// input elements at its position, and from gathered rows.
//
// The loops run over rows, then columns: groups of vectors, and a masked tail.
// Values that do not change along a row are computed before its columns.
#include "lower/lowering.h"

void lb_lower_eltwise(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_lower_uniforms(e);
  lb_kval row =
      lb_k_loop(b, lb_k_i64(b, 0), e->dims[LB_DIM_ROWS], lb_k_i64(b, 1));
  lb_lower_row(e, row);
  lb_lower_columns(e);
  lb_lower_row_stores(e);
  lb_k_end(b);
}
