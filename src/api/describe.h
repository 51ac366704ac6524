// api/describe.h -- inputs and outputs of a model as text, with symbolic dims.
#ifndef LB_API_DESCRIBE_H
#define LB_API_DESCRIBE_H

#include "graph/graph.h"
#include "limber/limber.h"

// Fills *out. Strings and arrays are allocated in `arena`; `name` is borrowed.
lb_status lb_describe(lb_arena *arena, const char *name, const lb_vinfo *info,
                      limber_value_info *out);

// Appends "float32[batch,3]", without dims if the rank is unknown.
void lb_describe_type(const limber_value_info *info, lb_strbuf *out);

// Appends the names, quoted and separated by commas; only the first few if
// there are many.
void lb_describe_names(const limber_value_info *infos, size_t n,
                       lb_strbuf *out);

#endif
