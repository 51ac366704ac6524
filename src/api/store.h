// api/store.h -- the kernel store on disk, configured by the environment.
//
//   LIMBER_CACHE_DIR=DIR|off
//       the directory; off: nothing is stored. Default: $XDG_CACHE_HOME/limber,
//       else ~/.cache/limber
//   LIMBER_CACHE_READONLY=PATH:PATH...
//       read-only layers, which are searched after the directory
//   LIMBER_STORE_CAPACITY=BYTES
//       maximum size of the file: "256M" (default), "1G", "0"
//
// Set-user-id programs ignore these variables and store nothing.
#ifndef LB_API_STORE_H
#define LB_API_STORE_H

#include "base/strbuf.h"
#include "store/store.h"

// Creates a store, without opening its files yet. An invalid variable is
// ignored with a warning. *out is NULL if there is neither a directory nor a
// layer.
lb_status lb_store_from_env(const lb_log *log, lb_store **out);

// Appends the directory; if there is none, *why says why.
void lb_store_directory(lb_strbuf *out, const char **why);
// Returns LIMBER_STORE_CAPACITY in bytes, or the default.
uint64_t lb_store_capacity(const lb_log *log);

#endif
