// tools/progress.h -- how far something long is: a bar on a terminal, else a
// line now and then. On standard error.
#ifndef LIMBER_TOOLS_PROGRESS_H
#define LIMBER_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  const char *what;  // "kernels"; borrowed
  uint64_t done, total;
  bool terminal;
  double start_ms, drawn_ms;
} progress;

void progress_begin(progress *p, const char *what, uint64_t total);
void progress_add(progress *p);  // one more is done
void progress_end(progress *p);

// The bar as text, for `width` columns in all.
void progress_text(const progress *p, double now_ms, int width, char *buf,
                   int cap);

#endif
