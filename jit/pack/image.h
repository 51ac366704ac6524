// pack/image.h -- the bytes of a pack: an index, and code.
#ifndef LB_PACK_IMAGE_H
#define LB_PACK_IMAGE_H

#include "base/blob.h"
#include "device/cpu/pack.h"
#include "pack/list.h"

typedef struct lb_pack_image {  // {0} is empty
  lb_pack_entry *entries;       // owned
  size_t n, cap;
  lb_strbuf specs, code;  // bytes
} lb_pack_image;

// Adds the kernel in `object`, which must run wherever it lies: LB_UNSUPPORTED
// if it holds an absolute address.
lb_status lb_pack_image_add(lb_pack_image *p, const lb_pack_item *item,
                            lb_span object);

// The index, with a head that says nothing yet of where the code is, appended
// to `out`. Sorts the entries.
lb_status lb_pack_image_index(lb_pack_image *p, lb_strbuf *out);
void lb_pack_image_fini(lb_pack_image *p);

#endif
