// api/describe.h -- inputs and outputs in words: dims as text.
#ifndef LB_API_DESCRIBE_H
#define LB_API_DESCRIBE_H

#include "graph/graph.h"
#include "limber/limber.h"

// Everything lies in `arena`; `name` is borrowed.
lb_status lb_describe(lb_arena *arena, const char *name, const lb_vinfo *info,
                      limber_value_info *out);

// "float32[batch,3]"; without dims where the rank is not known.
void lb_describe_type(const limber_value_info *info, lb_strbuf *out);

// "'a', 'b'", the first few of them.
void lb_describe_names(const limber_value_info *infos, size_t n,
                       lb_strbuf *out);

#endif
