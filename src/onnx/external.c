// onnx/external.c -- external data: files next to the model, each mapped once.
#include <inttypes.h>
#include <stdlib.h>

#include "onnx/import.h"

static lb_status map_file(lb_import *im, const char *location, lb_file **out) {
  lb_model *m = im->model;
  if (m->n_files == UINT32_MAX) return lb_oom();
  lb_file *files = realloc(m->files, (m->n_files + 1u) * sizeof *files);
  if (!files) return lb_oom();
  m->files = files;
  LB_TRY(lb_file_map_beside(im->path, location, &files[m->n_files]));
  *out = &files[m->n_files++];
  return LB_OK;
}

static lb_status find_file(lb_import *im, lb_pb_str where, lb_file **out) {
  void *known = lb_map_get(&im->files, where.p, where.n);
  if (known) {
    *out = &im->model->files[(uintptr_t)known - 1];
    return LB_OK;
  }
  const char *location = lb_pb_cstr(&im->scratch, where);
  if (!location) return lb_oom();
  LB_TRY(map_file(im, location, out));
  return lb_map_put(&im->files, where.p, where.n,
                    (void *)(uintptr_t)im->model->n_files, NULL);
}

lb_status lb_import_external(lb_import *im, const lb_external *e,
                             const char *label, size_t need,
                             const uint8_t **out) {
  if (!im->path)
    return lb_error(LB_INVALID,
                    "%s is in the file '%.*s', but a model loaded from bytes "
                    "has no directory; specify the directory of its files",
                    label, LB_STR(e->location));
  if (e->offset < 0 || e->length < -1)
    return lb_error(LB_INVALID, "%s: negative offset or length in '%.*s'",
                    label, LB_STR(e->location));
  if (e->length >= 0 && (uint64_t)e->length != need)
    return lb_error(LB_INVALID,
                    "%s needs %zu bytes, but the model gives it %" PRId64
                    " bytes of '%.*s'",
                    label, need, e->length, LB_STR(e->location));
  lb_file *f = NULL;
  lb_status st = find_file(im, e->location, &f);
  if (lb_failed(st)) return lb_status_note(st, "%s", label);
  size_t size = f->bytes.size;
  if ((uint64_t)e->offset > size || size - (size_t)e->offset < need)
    return lb_error(LB_INVALID,
                    "%s: '%.*s' is too short: it has %zu bytes, but %zu at "
                    "offset %" PRId64 " are needed",
                    label, LB_STR(e->location), size, need, e->offset);
  *out = f->bytes.data + e->offset;
  return LB_OK;
}
