// partition/known.c -- specs from the memo, and into it.
#include "partition/known.h"

#include <string.h>

void lb_bind_begin(lb_binding *b) {
  memset(b, 0, offsetof(lb_binding, operands));
  b->zones = 1;
  b->refusal = LB_REASON_LAYOUT;
}

bool lb_bind_known(const lb_partition *p, const lb_memo_key *key, double number,
                   lb_binding *b) {
  const lb_memo_spec *made = lb_memo_find(p->memo, key);
  if (!made) return false;
  b->made = made;
  b->spec = made->spec;
  memcpy(b->scalars, made->scalars, sizeof b->scalars);
  for (uint32_t i = 0; made->own >> i; i++)
    if (made->own >> i & 1)
      b->scalars[i] = lb_specgen_number(
          (lb_dtype)b->spec.nodes[b->spec.n_in + i].dtype, number);
  return true;
}

lb_status lb_bind_new(const lb_partition *p, const lb_memo_key *key,
                      lb_specgen *e, lb_binding *b, bool *ok) {
  lb_memo_spec made = {.own = e->own};
  lb_status st = lb_spec_finish(&e->b, &made.spec);
  *ok = !lb_failed(st);
  if (lb_status_code(st) == LB_UNSUPPORTED) {
    b->refusal = LB_REASON_LIMITS;
    lb_status_drop(st);
    return LB_OK;
  }
  LB_TRY(st);
  memcpy(made.scalars, e->scalars, made.spec.n_scalars * sizeof *made.scalars);
  b->made = lb_memo_add(p->memo, key, &made);
  b->spec = made.spec;
  memcpy(b->scalars, made.scalars, sizeof b->scalars);
  return LB_OK;
}
