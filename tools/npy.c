// tools/npy.c -- reads and writes .npy files.
//
// "\x93NUMPY", version (2 bytes), length of the header (2 bytes in version 1,
// then 4), the header, the elements. The header is a Python dict as text:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

#define MAGIC "\x93NUMPY"
#define HEADER_MAX 65536

static const char *const descrs[] = {
    [LIMBER_F32] = "<f4",  [LIMBER_F64] = "<f8", [LIMBER_F16] = "<f2",
    [LIMBER_BF16] = "<V2", [LIMBER_I8] = "|i1",  [LIMBER_I16] = "<i2",
    [LIMBER_I32] = "<i4",  [LIMBER_I64] = "<i8", [LIMBER_U8] = "|u1",
    [LIMBER_U16] = "<u2",  [LIMBER_U32] = "<u4", [LIMBER_U64] = "<u8",
    [LIMBER_BOOL] = "|b1",
};

// -- reading -----------------------------------------------------------------

// Returns the position after "'key':" and spaces, or NULL.
static const char *find_key(const char *header, const char *key) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "'%s':", key);
  const char *at = strstr(header, quoted);
  return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

static bool read_dtype(const char *header, limber_tensor *out, problem *p) {
  const char *at = find_key(header, "descr");
  if (!at || *at != '\'')
    return fail(p, EXIT_BAD, "its dtype is not a simple one");
  int n = (int)strcspn(++at, "'");
  for (int i = LIMBER_F32; i <= LIMBER_BOOL; i++) {
    // For single bytes and opaque types the byte order does not matter.
    bool same = n == 3 && !memcmp(at + 1, descrs[i] + 1, 2) &&
                (*at == '<' || *at == '|');
    if (same) out->dtype = (limber_dtype)i;
  }
  if (out->dtype) return true;
  return fail(p, EXIT_BAD, "dtype '%.*s' is not supported%s", n, at,
              *at == '>' ? ": big endian" : "");
}

static bool read_order(const char *header, problem *p) {
  const char *at = find_key(header, "fortran_order");
  if (at && !strncmp(at, "False", 5)) return true;
  return fail(p, EXIT_BAD,
              "it is in Fortran order; save numpy.ascontiguousarray(x)");
}

static bool read_shape(const char *header, limber_tensor *out, problem *p) {
  const char *at = find_key(header, "shape");
  if (!at || *at++ != '(') return fail(p, EXIT_BAD, "it has no shape");
  while (*(at += strspn(at, " ,")) != ')') {
    char *end;
    errno = 0;
    long long dim = strtoll(at, &end, 10);
    if (end == at || errno || dim < 0)
      return fail(p, EXIT_BAD, "its shape is not readable");
    if (out->rank == LIMBER_MAX_RANK)
      return fail(p, EXIT_BAD, "it has more than %d dims", LIMBER_MAX_RANK);
    out->dims[out->rank++] = dim;
    at = end;
  }
  return true;
}

// Returns the header as text, or NULL.
static char *read_header(FILE *f, problem *p) {
  unsigned char start[12];
  size_t size = 0;
  if (fread(start, 1, 10, f) != 10 || memcmp(start, MAGIC, 6)) {
    fail(p, EXIT_BAD, "it is not a .npy file");
    return NULL;
  }
  size = (size_t)start[8] | (size_t)start[9] << 8;
  if (start[6] >= 2 && fread(start + 10, 1, 2, f) == 2)
    size |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  char *header = size <= HEADER_MAX ? calloc(1, size + 1) : NULL;
  if (header && fread(header, 1, size, f) == size) return header;
  free(header);
  fail(p, EXIT_BAD, "its header is truncated");
  return NULL;
}

static bool read_open(FILE *f, limber_tensor *out, problem *p) {
  char *header = read_header(f, p);
  if (!header) return false;
  bool good = read_dtype(header, out, p) && read_order(header, p) &&
              read_shape(header, out, p) && tensor_alloc(out, p);
  free(header);
  if (!good) return false;
  size_t got = fread(out->data, 1, out->bytes, f);
  if (got == out->bytes) return true;
  return fail(p, EXIT_BAD, "it ends after %zu of %zu bytes of elements", got,
              out->bytes);
}

bool npy_read(const char *path, limber_tensor *out, problem *p) {
  problem why;
  *out = (limber_tensor){0};
  FILE *f = fopen(path, "rb");
  if (!f) return fail(p, EXIT_BAD, "%s: %s", path, strerror(errno));
  bool good = read_open(f, out, &why);
  fclose(f);
  if (good) return true;
  free(out->data);
  *out = (limber_tensor){0};
  return fail(p, why.exit, "%s: %.3000s", path, why.text);
}

// -- writing -----------------------------------------------------------------

static int print_header(const limber_tensor *t, char *buf, size_t cap) {
  int n =
      snprintf(buf, cap, "{'descr': '%s', 'fortran_order': False, 'shape': (",
               descrs[t->dtype]);
  for (int i = 0; i < t->rank; i++)
    n += snprintf(buf + n, cap - (size_t)n, "%" PRId64 ", ", t->dims[i]);
  return n + snprintf(buf + n, cap - (size_t)n, "), }");
}

bool npy_write(const char *path, const limber_tensor *t, problem *p) {
  char text[512];
  int n = print_header(t, text, sizeof text);
  while ((10 + n + 1) % 64) text[n++] = ' ';  // elements start at 64 bytes
  text[n++] = '\n';
  const unsigned char start[10] = {0x93,
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   (unsigned char)n,
                                   (unsigned char)(n >> 8)};
  FILE *f = fopen(path, "wb");
  if (!f) return fail(p, EXIT_BAD, "%s: %s", path, strerror(errno));
  bool good = fwrite(start, 1, sizeof start, f) == sizeof start &&
              fwrite(text, 1, (size_t)n, f) == (size_t)n &&
              fwrite(t->data, 1, t->bytes, f) == t->bytes;
  good = fclose(f) == 0 && good;
  return good || fail(p, EXIT_BAD, "%s: %s", path, strerror(errno));
}
