// store/repair.c -- rebuilds a corrupt file from its valid rows.
//
// Rows are not read with SQLite, because it refuses a file whose header or
// interior pages are wrong even if every row is intact. Instead each page is
// parsed as if it were a leaf of the table, and a row is accepted only if its
// checksum matches. So only rows that are corrupt themselves are lost.
//
// The format is https://sqlite.org/fileformat2.html: pages of LB_DB_PAGE bytes;
// a leaf has an array of cell offsets; a cell consists of length, id and
// payload, which may continue in a chain of overflow pages. Pages in the
// write-ahead log override those of the file. Integers are big-endian.
#include "store/repair.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE LB_DB_PAGE
#define MAX_ROW (64u << 20)  // bytes
#define LEAF 13              // page type: leaf of a table
#define WAL_HEADER 32
#define FRAME_HEADER 24
#define COLUMNS (LB_ROW_COLUMNS + 1)  // with id

typedef struct pages {
  // The file is read through SQLite's handle: closing a descriptor of our own
  // would release the POSIX locks of every connection of this process.
  lb_db db;
  sqlite3_file *file;      // borrowed from db
  int wal;                 // owned; -1: none
  uint32_t n;              // pages in the file and the log together
  uint32_t *frame;         // owned: log frame of page i + 1, plus 1; 0: none
  lb_blob payload, texts;  // of the row being read
} pages;

static uint32_t read_be(const uint8_t *p, int n) {
  uint32_t v = 0;
  for (int i = 0; i < n; i++) v = v << 8 | p[i];
  return v;
}

// -- pages --------------------------------------------------------------------

static bool read_at(int fd, uint64_t offset, uint8_t *out, size_t n) {
  return fd >= 0 && pread(fd, out, n, (off_t)offset) == (ssize_t)n;
}

static uint64_t frame_at(uint32_t i) {
  return WAL_HEADER + (uint64_t)i * (FRAME_HEADER + PAGE);
}

static bool read_page(const pages *p, uint32_t number, uint8_t out[PAGE]) {
  if (number == 0 || number > p->n) return false;
  uint32_t i = p->frame ? p->frame[number - 1] : 0;
  if (i) return read_at(p->wal, frame_at(i - 1) + FRAME_HEADER, out, PAGE);
  return p->file->pMethods->xRead(p->file, out, PAGE,
                                  (int64_t)(number - 1) * PAGE) == SQLITE_OK;
}

// Counts the frames up to the last commit; frames with other salts are stale.
// *last_page becomes the max. of itself and the page numbers in the log.
static uint32_t count_frames(const pages *p, uint32_t *last_page) {
  uint8_t header[WAL_HEADER], frame[FRAME_HEADER];
  uint32_t committed = 0;
  if (!read_at(p->wal, 0, header, sizeof header) ||
      read_be(header + 8, 4) != PAGE)
    return 0;
  for (uint32_t i = 0; read_at(p->wal, frame_at(i), frame, sizeof frame); i++) {
    if (memcmp(frame + 8, header + 16, 8) != 0) break;
    if (read_be(frame, 4) > *last_page) *last_page = read_be(frame, 4);
    if (read_be(frame + 4, 4)) committed = i + 1;
  }
  return committed;
}

static int read_log(pages *p) {
  uint32_t last = p->n;
  uint32_t n = count_frames(p, &last);
  if (!n || last > UINT32_C(1) << 26) return SQLITE_OK;
  p->frame = calloc(last, sizeof *p->frame);
  if (!p->frame) return SQLITE_NOMEM;
  p->n = last;
  for (uint32_t i = 0; i < n; i++) {
    uint8_t frame[FRAME_HEADER];
    if (!read_at(p->wal, frame_at(i), frame, sizeof frame)) break;
    uint32_t page = read_be(frame, 4);
    if (page >= 1 && page <= last) p->frame[page - 1] = i + 1;
  }
  return SQLITE_OK;
}

static int pages_open(pages *p, const lb_sqlite *q, const char *path) {
  char *wal = NULL;
  sqlite3_int64 size;
  *p = (pages){.wal = -1};
  int rc = lb_db_open(q, path, LB_DB_READ, &p->db);
  if (rc && lb_db_fault(rc) != LB_FAULT_CORRUPT) return rc;
  rc = q->file_control(p->db.handle, "main", SQLITE_FCNTL_FILE_POINTER,
                       &p->file);
  if (!rc) rc = p->file->pMethods->xFileSize(p->file, &size);
  if (rc) return rc;
  p->n = (uint32_t)(size / PAGE);
  if (asprintf(&wal, "%s-wal", path) < 0) return SQLITE_NOMEM;
  p->wal = open(wal, O_RDONLY | O_CLOEXEC);
  free(wal);
  return p->wal < 0 ? SQLITE_OK : read_log(p);
}

static void pages_close(pages *p) {
  lb_db_close(&p->db);
  if (p->wal >= 0) close(p->wal);
  free(p->frame);
  lb_blob_fini(&p->payload);
  lb_blob_fini(&p->texts);
}

// -- cells --------------------------------------------------------------------

// Reads 1 to 9 bytes with 7 bits each, 8 in the ninth. NULL: it is truncated.
static const uint8_t *read_varint(const uint8_t *p, const uint8_t *end,
                                  uint64_t *out) {
  *out = 0;
  for (int i = 0; i < 9 && p < end; i++, p++) {
    *out = i < 8 ? *out << 7 | (*p & 0x7f) : *out << 8 | *p;
    if (i == 8 || *p < 0x80) return p + 1;
  }
  return NULL;
}

// How many bytes of a payload of n bytes are in the cell itself.
static size_t local_bytes(size_t n) {
  const size_t most = PAGE - 35, least = (PAGE - 12) * 32 / 255 - 23;
  size_t k = least + (n - least) % (PAGE - 4);
  return n <= most ? n : k <= most ? k : least;
}

static bool reserve(lb_blob *b, size_t n) {
  if (b->size >= n) return true;
  uint8_t *data = realloc(b->data, n);
  if (!data) return false;
  *b = (lb_blob){data, n};
  return true;
}

// Reads the payload of the cell at offset `at` into p->payload, its id to *id.
static bool read_cell(pages *p, const uint8_t page[PAGE], size_t at,
                      int64_t *id, size_t *size) {
  uint64_t n, rowid;
  const uint8_t *end = page + PAGE;
  const uint8_t *from = read_varint(page + at, end, &n);
  if (from) from = read_varint(from, end, &rowid);
  if (!from || n < 64 || n > MAX_ROW || n / PAGE > p->n) return false;
  size_t local = local_bytes(n);
  size_t pointer = local < n ? 4 : 0;
  if ((size_t)(end - from) < local + pointer || !reserve(&p->payload, n))
    return false;
  memcpy(p->payload.data, from, local);
  uint32_t next = pointer ? read_be(from + local, 4) : 0;
  for (size_t got = local; got < n;) {
    uint8_t more[PAGE];
    if (!read_page(p, next, more)) return false;
    size_t take = n - got < PAGE - 4 ? n - got : PAGE - 4;
    memcpy(p->payload.data + got, more + 4, take);
    next = read_be(more, 4);
    got += take;
  }
  *id = (int64_t)rowid;
  *size = n;
  return true;
}

// -- records ------------------------------------------------------------------

static size_t bytes_of_type(uint64_t type) {
  static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  return type < 12 ? sizes[type] : (size_t)(type - 12) / 2;
}

static int64_t integer(const uint8_t *p, uint64_t type) {
  if (type == 8 || type == 9) return type == 9;
  size_t n = bytes_of_type(type);
  uint64_t v = n && p[0] & 0x80 ? UINT64_MAX : 0;
  for (size_t i = 0; i < n; i++) v = v << 8 | p[i];
  return (int64_t)v;
}

// A record is a list of types, followed by the values. Copies texts and blobs,
// NUL-terminated, to p->texts. False: it is not a record of the kernel table.
static bool read_record(pages *p, size_t size, lb_row *row) {
  const uint8_t *start = p->payload.data, *end = start + size;
  uint64_t header, types[COLUMNS];
  const uint8_t *at = read_varint(start, end, &header);
  if (!at || header > size || !reserve(&p->texts, size + COLUMNS)) return false;
  const uint8_t *value = start + header;
  for (int i = 0; i < COLUMNS; i++) {
    if (!(at = read_varint(at, start + header, &types[i]))) return false;
  }
  if (at != start + header) return false;
  uint8_t *to = p->texts.data;
  for (int i = 0; i < COLUMNS; i++) {
    size_t n = bytes_of_type(types[i]);
    if (n > (size_t)(end - value)) return false;
    if (i && types[i] >= 12) {
      memcpy(to, value, n);
      to[n] = '\0';
      row->bytes[i - 1] = (lb_span){to, n};
      to += n + 1;
    } else if (i) {
      row->number[i - 1] = integer(value, types[i]);
    }
    value += n;
  }
  return true;
}

// -- the whole file -----------------------------------------------------------

static int recover_row(pages *p, const uint8_t page[PAGE], size_t at, lb_db *to,
                       lb_repair_result *out) {
  lb_row row = {0};
  lb_store_entry e;
  int64_t id;
  size_t size;
  if (!read_cell(p, page, at, &id, &size) || !read_record(p, size, &row)) {
    return SQLITE_OK;
  }
  if (!lb_row_entry(&row, &e) || lb_db_id(e.key) != id) {
    out->lost++;
    return SQLITE_OK;
  }
  int rc = lb_db_write(to, LB_Q_PUT_NEW, &e);
  if (!rc) out->recovered += (uint64_t)to->q->changes(to->handle);
  return rc;
}

// A page with a corrupt header may still have its rows, so its first 16 cell
// offsets are tried.
static int recover_page(pages *p, uint32_t number, lb_db *to,
                        lb_repair_result *out) {
  uint8_t page[PAGE];
  if (!read_page(p, number, page)) return SQLITE_OK;
  size_t cells = read_be(page + 3, 2);
  if (page[0] != LEAF || cells > (PAGE - 8) / 2) cells = 16;
  for (size_t i = 0; i < cells; i++) {
    size_t at = read_be(page + 8 + 2 * i, 2);
    if (at < 8 || at > PAGE - 8) continue;
    int rc = recover_row(p, page, at, to, out);
    if (rc) return rc;
  }
  return SQLITE_OK;
}

static int recover_rows(const char *path, lb_db *to, lb_repair_result *out) {
  pages p;
  int rc = pages_open(&p, to->q, path);
  for (uint32_t i = 2; !rc && i <= p.n; i++)  // page 1 has the schema
    rc = recover_page(&p, i, to, out);
  pages_close(&p);
  return rc;
}

// Overwrites the corrupt file, whatever it contains, in one transaction.
static int overwrite_database(lb_db *from, const char *path) {
  const lb_sqlite *q = from->q;
  lb_db to;
  int rc = lb_db_open(q, path, LB_DB_WRITE, &to);
  if (!to.handle || (rc && lb_db_fault(rc) != LB_FAULT_CORRUPT)) goto done;
  q->db_config(to.handle, SQLITE_DBCONFIG_RESET_DATABASE, 1, NULL);
  sqlite3_backup *b = q->backup_init(to.handle, "main", from->handle, "main");
  if (b) {
    rc = q->backup_step(b, -1);
    int end = q->backup_finish(b);
    rc = rc == SQLITE_DONE ? end : rc;
  } else {
    rc = q->extended_errcode(to.handle);
  }
  q->db_config(to.handle, SQLITE_DBCONFIG_RESET_DATABASE, 0, NULL);

done:
  lb_db_close(&to);
  return rc;
}

static void unlink_suffixed(const char *path, const char *suffix) {
  char *name = NULL;
  if (asprintf(&name, "%s%s", path, suffix) < 0) return;
  unlink(name);
  free(name);
}

// Fallback if SQLite refuses to overwrite: replaces the file. Processes that
// have the old one open notice at their next write.
static int replace_file(const char *temp_path, const char *path) {
  unlink_suffixed(path, "-wal");
  unlink_suffixed(path, "-shm");
  return rename(temp_path, path) ? SQLITE_IOERR : SQLITE_OK;
}

int lb_repair(const lb_sqlite *q, const char *path, const char *temp_path,
              bool recover, lb_repair_result *out) {
  lb_db db;
  *out = (lb_repair_result){0};
  unlink(temp_path);
  int rc = lb_db_open(q, temp_path, LB_DB_WRITE, &db);
  if (!rc)
    rc = lb_db_exec(&db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF");
  if (!rc) rc = lb_db_create(&db, false);
  if (!rc) rc = lb_db_run(&db, LB_Q_BEGIN);
  if (!rc && recover) rc = recover_rows(path, &db, out);
  if (!rc) rc = lb_db_run(&db, LB_Q_COMMIT);
  int copied = rc ? rc : overwrite_database(&db, path);
  lb_db_close(&db);
  if (!rc && lb_db_fault(copied) == LB_FAULT_CORRUPT)
    copied = replace_file(temp_path, path);
  unlink(temp_path);
  return copied;
}
