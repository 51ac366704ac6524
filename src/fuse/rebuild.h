// fuse/rebuild.h -- builds the graph of fuse/ragged.h from what each value is
// needed for. Internal to the module.
#ifndef LB_FUSE_REBUILD_H
#define LB_FUSE_REBUILD_H

#include "fuse/tokens.h"

typedef enum lb_sink {
  LB_SINK_NONE,
  LB_SINK_SUM,    // over the sequence, of rows that are 0 at padding
  LB_SINK_COUNT,  // the same of a number by the mask: tokens are counted
  LB_SINK_FIRST,  // the row of the first position
} lb_sink;

enum {  // bits: how a value is needed
  LB_NEED_WHOLE = 1,
  LB_NEED_TOKENS = 2,  // computed from rows of tokens
};

typedef struct lb_rebuild {
  const lb_tokens *tokens;
  uint8_t *needs;      // by value id
  uint8_t *used;       // by node id: the needs of its outputs
  uint8_t *sinks;      // by node id: lb_sink
  bool first;          // some sink is LB_SINK_FIRST
  uint32_t row_bytes;  // of whole values, read for each token
  lb_graph *graph;
  lb_value **whole, **packed;  // by value id, in the new graph; NULL: none yet
  lb_value *rows, *positions, *segments, *first_rows;
} lb_rebuild;

// Nothing is needed yet. Memory is that of the arena of `t`.
lb_status lb_rebuild_init(lb_rebuild *b, const lb_tokens *t);
// Builds the graph; *out is owned by the caller.
lb_status lb_rebuild_graph(lb_rebuild *b, lb_graph **out);

#endif
