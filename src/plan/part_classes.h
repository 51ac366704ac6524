// plan/part_classes.h -- partitions that do the same at any shapes.
//
// Models repeat themselves: layers are alike but for their weights. *Twins* are
// partitions whose nodes, attributes, small constants and dims (as expressions)
// are equal, one by one. Where their operands also lie alike, they have the
// same launches, but for where operands begin. Found once at load.
#ifndef LB_PLAN_PART_CLASSES_H
#define LB_PLAN_PART_CLASSES_H

#include "partition/partition.h"
#include "plan/sizes.h"

typedef struct lb_part_class {
  uint32_t group;     // number of it; LB_NO_PART_CLASS: it is the only one
  uint32_t n_values;  // that nodes read of others: constants, too
  const lb_value **values;  // each once; twins have theirs in the same order
} lb_part_class;
#define LB_NO_PART_CLASS UINT32_MAX

typedef struct lb_part_classes {  // {0}: none
  lb_part_class *list;            // owned; in order of partitions
  const lb_part_class *
      *of_node;             // owned; by id of a partition's last node, or NULL
  const lb_value **values;  // owned; of all of them
  uint32_t n_groups;
} lb_part_classes;

lb_status lb_part_classes_init(lb_part_classes *t, const lb_partitioning *parts,
                               const lb_graph *g, const lb_sizes *sizes);
void lb_part_classes_fini(lb_part_classes *t);

#endif
