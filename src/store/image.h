// store/image.h -- a read-only layer: a file of kernels, for example one that
// was shipped in a container image.
#ifndef LB_STORE_IMAGE_H
#define LB_STORE_IMAGE_H

#include "store/database.h"
#include "store/layer.h"

typedef struct lb_image {
  lb_layer base;
  char *path;     // owned
  unsigned kind;  // of its failures, for lb_core_warn
  lb_db db;
  bool open_tried;
} lb_image;

// `path` is a file, or a directory with an LB_STORE_FILE.
lb_status lb_image_new(lb_store_core *core, const char *path, unsigned kind,
                       lb_image **out);
// Opens the file at the first call. False: it cannot be used; the failure was
// logged and counted.
bool lb_image_ready(lb_image *m);

#endif
