// store/sqlite.c -- SQLite, loaded when a store is first opened.
#include "store/sqlite.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define OLDEST 3024000  // has upserts and SQLITE_DBCONFIG_RESET_DATABASE

static lb_status find(void *library, const char *name, void *out) {
  void *function = dlsym(library, name);
  if (!function)
    return lb_error(LB_UNSUPPORTED, "SQLite has no function %s", name);
  memcpy(out, &function, sizeof function);
  return LB_OK;
}

lb_status lb_sqlite_load(lb_sqlite *out) {
  void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return lb_error(LB_UNSUPPORTED, "SQLite cannot be loaded: %s", dlerror());
#define F(name) LB_TRY(find(library, "sqlite3_" #name, &out->name));
  LB_SQLITE_FUNCTIONS(F)
#undef F
  int version = out->libversion_number();
  if (version < OLDEST)
    return lb_error(LB_UNSUPPORTED, "SQLite %d.%d is too old: 3.24 is needed",
                    version / 1000000, version / 1000 % 1000);
  return LB_OK;
}
