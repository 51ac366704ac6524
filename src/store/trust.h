// store/trust.h -- whose files code is taken from.
//
// A checksum finds accidents; who may write a file decides what code runs. So a
// folder must belong to the user and be writable by nobody else, and so must
// the files; a read-only layer may belong to root as well.
#ifndef LB_STORE_TRUST_H
#define LB_STORE_TRUST_H

#include <stdbool.h>

#include "base/status.h"

// Makes the folder, and those above it, where they are not there, for the user
// alone. LB_INVALID, with the reason, if it is not to be trusted; LB_IO if it
// cannot be made.
lb_status lb_trust_directory(const char *folder);
// A regular file, or none. *exists may be NULL.
lb_status lb_trust_file(const char *path, bool or_root, bool *exists);

#endif
