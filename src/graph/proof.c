// graph/proof.c -- proofs of skip rules as text.
#include "graph/proof.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/strbuf.h"

static const char *const texts[LB_PROOF_COUNT] = {
#define LB_PROOF(id, text) text,
#include "graph/proofs.def"
};

static void print_list(lb_strbuf *b, const int64_t *list, int n) {
  for (int i = 0; i < n; i++)
    lb_strbuf_printf(b, "%s%" PRId64, i ? "," : "", list[i]);
}

// "dim 1 is 1", "dims 1 and 3 are 1", "dims 0, 1 and 3 are 1".
static void print_ones(lb_strbuf *b, int rank, const int64_t *dims) {
  int ones = 0, printed = 0;
  for (int i = 0; i < rank; i++) ones += dims[i] == 1;
  if (ones == 0) {
    lb_strbuf_printf(b, "no dim is 1");
    return;
  }
  lb_strbuf_printf(b, ones == 1 ? "dim " : "dims ");
  for (int i = 0; i < rank; i++) {
    if (dims[i] != 1) continue;
    const char *comma = printed == 0          ? ""
                        : printed == ones - 1 ? " and "
                                              : ", ";
    lb_strbuf_printf(b, "%s%d", comma, i);
    printed++;
  }
  lb_strbuf_printf(b, ones == 1 ? " is 1" : " are 1");
}

static void print_phrase(lb_strbuf *b, const lb_proof *p, int rank,
                         const int64_t *dims) {
  for (const char *at = texts[p->kind]; *at; at++) {
    if (*at != '%') {
      lb_strbuf_printf(b, "%c", *at);
      continue;
    }
    switch (*++at) {
      case 'I': lb_strbuf_printf(b, "%u", (unsigned)p->input); break;
      case 'A': lb_strbuf_printf(b, "%u", (unsigned)p->axis); break;
      case 'F': lb_strbuf_printf(b, "%" PRId64, p->first); break;
      case 'N': lb_strbuf_printf(b, "%" PRId64, p->n); break;
      default: print_ones(b, dims ? rank : 0, dims); break;
    }
  }
}

char *lb_proof_print(const lb_node *n, const lb_proof *p, int rank,
                     const int64_t *dims, char *buf, size_t cap) {
  lb_strbuf b = {0};
  uint32_t count;
  const int64_t *perm = lb_attr_ints(n, "perm", &count);
  lb_strbuf_printf(&b, "%s", lb_op_infos[n->op].name);
  if (perm) {
    lb_strbuf_printf(&b, " [");
    print_list(&b, perm, (int)count);
    lb_strbuf_printf(&b, "]");
  }
  if (dims) {
    lb_strbuf_printf(&b, " of [");
    print_list(&b, dims, rank);
    lb_strbuf_printf(&b, "]");
  }
  lb_strbuf_printf(&b, ": ");
  print_phrase(&b, p, rank, dims);
  snprintf(buf, cap, "%s", b.data ? b.data : "");
  lb_strbuf_fini(&b);
  return buf;
}
