// base/blob.h -- an owned byte buffer.
#ifndef LB_BASE_BLOB_H
#define LB_BASE_BLOB_H

#include <stdlib.h>

#include "base/file.h"

typedef struct lb_blob {  // {0} is empty
  uint8_t *data;          // owned; from malloc
  size_t size;
} lb_blob;

static inline lb_span lb_blob_span(const lb_blob *b) {
  return (lb_span){b->data, b->size};
}

static inline void lb_blob_fini(lb_blob *b) {
  free(b->data);
  *b = (lb_blob){0};
}

#endif
