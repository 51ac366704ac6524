// partition/known.c -- reads specs from the memo and adds them.
#include "partition/known.h"

#include <string.h>

void lb_bind_begin(lb_binding *b) {
  memset(b, 0, offsetof(lb_binding, operands));
  b->zones = 1;
  b->refusal = LB_REASON_LAYOUT;
}

bool lb_bind_known(const lb_partition *p, const lb_memo_key *key, double number,
                   lb_binding *b) {
  const lb_memo_spec *memo_spec = lb_memo_find(p->memo, key);
  if (!memo_spec) return false;
  b->memo_spec = memo_spec;
  b->spec = memo_spec->spec;
  memcpy(b->scalars, memo_spec->scalars, sizeof b->scalars);
  for (uint32_t i = 0; memo_spec->size_scalars >> i; i++)
    if (memo_spec->size_scalars >> i & 1)
      b->scalars[i] = lb_specgen_number(
          (lb_dtype)b->spec.nodes[b->spec.n_in + i].dtype, number);
  return true;
}

lb_status lb_bind_new(const lb_partition *p, const lb_memo_key *key,
                      lb_specgen *e, lb_binding *b, bool *ok) {
  lb_memo_spec memo_spec = {.size_scalars = e->size_scalars};
  lb_status st = lb_spec_finish(&e->b, &memo_spec.spec);
  *ok = !lb_failed(st);
  if (lb_status_code(st) == LB_UNSUPPORTED) {
    b->refusal = LB_REASON_LIMITS;
    lb_status_drop(st);
    return LB_OK;
  }
  LB_TRY(st);
  memcpy(memo_spec.scalars, e->scalars,
         memo_spec.spec.n_scalars * sizeof *memo_spec.scalars);
  b->memo_spec = lb_memo_add(p->memo, key, &memo_spec);
  b->spec = memo_spec.spec;
  memcpy(b->scalars, memo_spec.scalars, sizeof b->scalars);
  return LB_OK;
}
