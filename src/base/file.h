// base/file.h -- memory-mapped files, and small file operations.
#ifndef LB_BASE_FILE_H
#define LB_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_span {  // borrowed bytes
  const uint8_t *data;
  size_t size;
} lb_span;

// A read-only private mapping of a whole regular file. {0} is closed.
typedef struct lb_file {
  lb_span bytes;  // size 0: data is not NULL but may not be read
  void *base;     // owned mapping, NULL when empty or closed
} lb_file;

lb_status lb_file_map(const char *path, lb_file *out);

// Maps the file `relative` in the directory of `model_path`. Absolute paths,
// "..", and links that lead out of the directory are refused with LB_INVALID.
lb_status lb_file_map_beside(const char *model_path, const char *relative,
                             lb_file *out);
void lb_file_close(lb_file *f);
// Releases the resident pages of the mapping; a later access reads the same
// bytes again.
void lb_file_drop_pages(const lb_file *f);

bool lb_file_exists(const char *path);

// Replaces the file atomically: writes a temporary file in the same directory
// and renames it.
lb_status lb_file_replace(const char *path, lb_span bytes);

// Reads a small text file (procfs, sysfs) into buf, NUL-terminated. LB_INVALID
// if it does not fit.
lb_status lb_file_read_small(const char *path, char *buf, size_t cap);

#endif
