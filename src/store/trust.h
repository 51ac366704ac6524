// store/trust.h -- ownership checks for files from which code is loaded.
//
// A checksum detects accidents, not attacks: any user who may write a file
// decides which code runs. The directory and its files must therefore belong to
// the user and be writable by no other; a read-only layer may belong to root.
#ifndef LB_STORE_TRUST_H
#define LB_STORE_TRUST_H

#include <stdbool.h>

#include "base/status.h"

// Creates the directory and its missing parents with mode 0700. LB_INVALID,
// with the reason, if it must not be trusted; LB_UNSUPPORTED on a network file
// system; LB_IO if it cannot be created.
lb_status lb_trust_directory(const char *directory);
// Succeeds for a trusted regular file and for a missing one. `or_root`: the
// file may belong to root. `exists` may be NULL.
lb_status lb_trust_file(const char *path, bool or_root, bool *exists);

#endif
