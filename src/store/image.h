// store/image.h -- a layer that is only read: a file that came with an image.
#ifndef LB_STORE_IMAGE_H
#define LB_STORE_IMAGE_H

#include "store/database.h"
#include "store/layer.h"

typedef struct lb_image {
  lb_layer base;
  char *path;     // owned
  unsigned kind;  // of its troubles, for lb_core_warn
  lb_db db;
  bool tried;
} lb_image;

// `path` is a file, or a folder with an LB_STORE_FILE.
lb_status lb_image_new(lb_store_core *core, const char *path, unsigned kind,
                       lb_image **out);
// Opens it if it is not open. False: it cannot be had; that was told and
// counted.
bool lb_image_ready(lb_image *m);

#endif
