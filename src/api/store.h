// api/store.h -- where kernels are kept on disk, as the environment says.
//
//   LIMBER_CACHE_DIR        the folder; `off`: none. Else
//   $XDG_CACHE_HOME/limber,
//                           else ~/.cache/limber
//   LIMBER_CACHE_READONLY   read-only layers below it, ':' between them
//   LIMBER_STORE_CAPACITY   bytes of the file: "256M" (the default), "1G", "0"
//
// In set-user-id programs none of them is looked at, and nothing is kept.
#ifndef LB_API_STORE_H
#define LB_API_STORE_H

#include "base/strbuf.h"
#include "store/store.h"

// A store, of which nothing is opened yet. What is wrong with the environment
// is a warning. *out is NULL where nothing is to be kept or found.
lb_status lb_store_of_environment(const lb_log *log, lb_store **out);

// The folder; "" if there is none, and *why says so.
void lb_store_directory(lb_strbuf *out, const char **why);
uint64_t lb_store_capacity(const lb_log *log);

#endif
