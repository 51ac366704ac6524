// plan/twins.h -- partitions that do the same at any shapes.
//
// Models repeat themselves: layers are alike but for their weights. *Twins* are
// partitions whose nodes, attributes, small constants and dims (as expressions)
// are equal, one by one. Where their operands also lie alike, they have the
// same launches, but for where operands begin. Found once at load.
#ifndef LB_PLAN_TWINS_H
#define LB_PLAN_TWINS_H

#include "partition/partition.h"
#include "plan/sizes.h"

typedef struct lb_twin {
  uint32_t group;           // number of it; LB_NO_TWINS: it is the only one
  uint32_t n_values;        // that nodes read of others: constants, too
  const lb_value **values;  // each once; twins have theirs in the same order
} lb_twin;
#define LB_NO_TWINS UINT32_MAX

typedef struct lb_twins {   // {0}: none
  lb_twin *list;            // owned; in order of partitions
  const lb_twin **of_node;  // owned; by id of a partition's last node, or NULL
  const lb_value **values;  // owned; of all of them
  uint32_t n_groups;
} lb_twins;

lb_status lb_twins_init(lb_twins *t, const lb_partitioning *parts,
                        const lb_graph *g, const lb_sizes *sizes);
void lb_twins_fini(lb_twins *t);

#endif
