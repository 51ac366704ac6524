// tools/npy.h -- reads and writes .npy files: dense, little endian, versions 1
// to 3.
//
// numpy has no bfloat16: it is written as '<V2', as ml_dtypes does, and a file
// of '<V2' is read as bfloat16.
#ifndef LIMBER_TOOLS_NPY_H
#define LIMBER_TOOLS_NPY_H

#include "cli.h"

// On success the caller frees out->data. `out` is zero on failure.
bool npy_read(const char *path, limber_tensor *out, problem *p);
bool npy_write(const char *path, const limber_tensor *t, problem *p);

#endif
