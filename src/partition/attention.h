// partition/attention.h -- an Attention node as one kernel.
#ifndef LB_PARTITION_ATTENTION_H
#define LB_PARTITION_ATTENTION_H

#include "partition/partition.h"

// Whether the node can be a partition, according to operator, dtypes, inputs,
// outputs and attributes: float32, no past, no window.
bool lb_attention_is(const lb_node *n);

// lb_partition_bind for a partition that consists of such a node.
lb_status lb_attention_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok);

#endif
