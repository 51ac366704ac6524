// plan/part_classes.h -- classes of partitions that are equivalent at any
// shape.
//
// The layers of a model often differ only in their weights. *Equivalent
// partitions* have pairwise equal nodes, attributes, small constants and
// symbolic dims. If the dims and strides of their operands are equal too, their
// launches differ only in the addresses of operands. Classes are found once, at
// load.
#ifndef LB_PLAN_PART_CLASSES_H
#define LB_PLAN_PART_CLASSES_H

#include "partition/partition.h"
#include "plan/sizes.h"

typedef struct lb_part_class {
  uint32_t class_id;  // number of the class; LB_NO_PART_CLASS: no other
                      // partition is equivalent
  uint32_t n_values;  // values from outside that nodes read, constants included
  const lb_value **values;  // each once; in the same order for all partitions
                            // of a class
} lb_part_class;
#define LB_NO_PART_CLASS UINT32_MAX

typedef struct lb_part_classes {  // {0}: none
  lb_part_class *list;            // owned; by partition number
  const lb_part_class **of_node;  // owned; by id of a partition's last node;
                                  // NULL: none
  const lb_value **values;        // owned; storage of all `values` above
  uint32_t n_classes;
} lb_part_classes;

lb_status lb_part_classes_init(lb_part_classes *t, const lb_partitioning *parts,
                               const lb_graph *g, const lb_sizes *sizes);
void lb_part_classes_fini(lb_part_classes *t);

#endif
