// spec/spec.h -- what a kernel computes, with no sizes in it.
//
// A spec is a small DAG of operations in a *form*: the loops around it. Sizes,
// strides and scalars are arguments of the kernel, always all of them, so any
// kernel of a spec can replace another between two steps. Shared by the library
// and the worker; plain bytes, comparable and hashable.
//
// Forms, over a space of rows x cols (deeper loops run around the kernel):
//   MAP     each output element from the input elements at its place. PICK
//           reads at another row: its sources are the input and the row's
//           number, the same for all columns
//   ROWS    the same, and reductions along a row (RSUM, ...): softmax, norms
//   MATMUL  rows M, cols N: ACC is the sum over k of a[m,k] * b[k,n], then as
//           in MAP on each element of the product. Input 0 is a, input 1 is b;
//           no node reads them but ACC, in whose dtype they are multiplied.
//   CONV    as MATMUL, but a row of a, and a column of b, come in pieces: len
//           runs of `steps` pieces of k elements. ACC is the sum over r, s, k
//           of a[m,r,s,k] * b[r,s,k,n]. a is FULL, b lies in panels;
//           piece (r, s) lies r * run + s * step elements behind the first, at
//           tap strides of each of them.
//   WINDOW  ACC is made of elements of input 0 in a window of len runs of
//           `steps`: x[m,r,s,n], likewise at tap strides. Its kind (lb_acc)
//           says how: DOT multiplies them with those of input 1, w[r,s,n], and
//           sums; the others combine them. Both inputs are FULL, w has no rows.
//   ATTENTION  rows M, cols N, and len L: inputs 0, 1 and 2 are q [M x K], k
//           [L x K] and v [L x N]. ACC is the sum over k of q[m,k] * k[l,k],
//           from which nodes make the score of place (m, l); further inputs lie
//           over M x L. The output's node is the score, and the output is the
//           sum over l of softmax(score)[m,l] * v[l,n].
//
// (1) Nodes stand in dependency order: sources are earlier nodes. INPUT nodes
//     come first, one for each input in order of their numbers, then SCALAR
//     nodes likewise. Forms with factors have one ACC, others none; reductions
//     are in ROWS alone, where there is at least one. ATTENTION has one output,
//     of ACC's dtype, a float, and no COLS. ACC of WINDOW is a float.
//     PICK is in MAP alone. Its input is FULL, and nothing reads it but PICK;
//     the number is an int64 input, ROWS or ONE, or the sum of two.
// (2) Equal meaning as far as it is cheap to see gives equal bytes: unused
//     bytes are zero, equal nodes are one, dead nodes are gone, sources of
//     commutative operations are ordered. Nodes are ordered by depth, then by
//     their bytes.
// (3) dtypes are those of src/base/dtype.h. Arithmetic happens in the node's
//     dtype; CAST changes it. float16 and bfloat16 are storage: they are read,
//     cast and written.
//
// Results are the same bits whoever computes them, mathematical functions
// aside:
// (4) A reduction has 64 lanes: element j of a row belongs to lane j % 64, a
//     lane combines its elements in order (x0, then op(x0, x1), ...), and
//     lane i is combined with lane i + n/2 for n = 64, 32, ..., 2. Lanes
//     without an element do not take part. An empty row gives 0, 1, -inf (or
//     the least integer), inf (or the greatest). A row of more than
//     LB_SUM_COLS elements is cut into blocks of so many; a lane of a sum of
//     floats begins anew with each, its sums of the blocks are added in order
//     in float64, and what that gives is rounded before lanes are combined.
// (5) A sum of products begins with a[m,0] * b[0,n]; each further product is
//     added in the order of k (of r, s, k), in floats by one fused operation.
//     Without products it is 0. Where b is PAIRED there are two such sums, of
//     the even and of the odd k, and in the end they are added. Where it is in
//     QUADS, ACC is int32, both are bytes, and a is FULL. A WINDOW
//     combines likewise: x0, then op(that, x1), ...; without elements it gives
//     what (4) says. If SUM or SQUARES has more than LB_SUM_TAPS elements, they
//     are cut into blocks: of LB_SUM_TAPS steps of a run, or of as many runs as
//     have no more than that. The sums of LB_SUM_BLOCKS blocks are added in
//     order; their sums are added in order in float64 and rounded in the end.
// (6) ATTENTION takes keys in blocks of 256. Each row has a maximum, a sum and
//     N totals, at first -inf, 0 and 0. A block makes of them
//       max' = the greatest of max and the scores, NaN left out;
//       base = max', or 0 where that is -inf;  c = exp(max - base);
//       p[l] = exp(score[l] - base);
//       sum' = fma(sum, c, the sum of p as (4) has it);
//       total'[n] = fma(total[n], c, the sum of p[l] * v[l,n]), which begins
//                   with 0 and gets each product in the order of l, fused.
//     The output is total * (1 / sum), of sum 0 total * 1: so a row whose
//     scores are all -inf gives 0, and so does L = 0. exp is that of
//     spec/exp.h; in float64 it is any.
//
// An output may be the very memory of an input of the same dtype, layout and
// strides, factors of a product, inputs of ATTENTION and of PICK apart; else
// outputs overlap nothing.
#ifndef LB_SPEC_SPEC_H
#define LB_SPEC_SPEC_H

#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/strbuf.h"

#define LB_SPEC_MAX_NODES 48
#define LB_SPEC_MAX_IN 12
#define LB_SPEC_MAX_OUT 4
#define LB_SPEC_MAX_SCALARS 8
#define LB_SPEC_LANES 64    // of a reduction
#define LB_SUM_COLS 16384   // of a row that lanes add up in one go
#define LB_SUM_TAPS 25      // of a window, likewise
#define LB_SUM_BLOCKS 16    // of so many taps
#define LB_PANEL_COLS 16    // of a panel of PACKED and QUADS
#define LB_PANEL_K2_COLS 8  // of a panel of PAIRED
#define LB_SPEC_KEYS 256    // of a block of ATTENTION
#define LB_SHORT_COLS 32    // rows so short are reduced several at a time

typedef enum lb_form {
  LB_FORM_ELTWISE,
  LB_FORM_ROW_REDUCE,
  LB_FORM_MATMUL,
  LB_FORM_ATTENTION,
  LB_FORM_CONV,
  LB_FORM_WINDOW,
  LB_FORM_COUNT,
} lb_form;

typedef enum lb_acc {  // how ACC is made; not DOT: in WINDOW alone
  LB_ACC_DOT,
  LB_ACC_SUM,
  LB_ACC_MAX,
  LB_ACC_MIN,
  LB_ACC_SQUARES,  // their sum
  LB_ACCS
} lb_acc;

// How an operand lies over rows x cols (a over rows x k, b over k x cols; for
// ATTENTION see above).
typedef enum lb_layout {
  LB_LAYOUT_FULL,       // columns contiguous, rows at any stride
  LB_LAYOUT_PER_COL,    // one row, the same for all: a bias. Inputs alone
  LB_LAYOUT_PER_ROW,    // one element a row, at any stride
  LB_LAYOUT_BROADCAST,  // one element. Inputs alone
  LB_LAYOUT_STRIDED,    // rows and columns at any stride
  LB_LAYOUT_PANEL,      // MATMUL's b: [N/16][K][16], zero-padded: spec/panel.h
  LB_LAYOUT_PANEL_K2,   // the same in pairs of k, which is even:
                        // [N/8][K/2][8][2]
  LB_LAYOUT_PANEL_K4,   // bytes in fours of k, a multiple of 4:
                        // [N/16][K/4][16][4]
  LB_LAYOUT_COUNT,
} lb_layout;

// Columns of a panel of b: so many elements of it belong to one k. 0: it has
// none.
static inline int lb_panel_cols(uint8_t layout) {
  if (layout == LB_LAYOUT_PANEL_K2) return LB_PANEL_K2_COLS;
  bool whole = layout == LB_LAYOUT_PANEL || layout == LB_LAYOUT_PANEL_K4;
  return whole ? LB_PANEL_COLS : 0;
}
// How many k lie side by side in it, for each column: k is a multiple of that.
static inline int lb_panel_rows(uint8_t layout) {
  if (layout == LB_LAYOUT_PANEL_K4) return 4;
  return layout == LB_LAYOUT_PANEL_K2 ? 2 : 1;
}

typedef enum lb_sop {
#define LB_SOP(ID, ...) LB_S_##ID,
#include "spec/sops.def"
  LB_S_COUNT
} lb_sop;

typedef enum lb_srule {
  LB_SR_LEAF,
  LB_SR_SAME,        // sources and value have one dtype
  LB_SR_COMPARE,     // sources have one dtype, the value is bool
  LB_SR_SELECT,      // bool, then as SAME
  LB_SR_CAST,        // any to any other
  LB_SR_GATHER_ROW,  // any and int64, then the first
  LB_SR_REDUCE,      // as SAME; along a row
} lb_srule;

enum {  // kinds of dtypes
  LB_SD_FLOAT = 1,
  LB_SD_INT = 2,
  LB_SD_BOOL = 4,
  LB_SD_NUM = LB_SD_FLOAT | LB_SD_INT,
  LB_SD_BITS = LB_SD_INT | LB_SD_BOOL,
  LB_SD_ALL = LB_SD_NUM | LB_SD_BOOL,
};
unsigned lb_sdtype_kind(lb_dtype t);  // 0 for what is storage alone

typedef struct lb_sop_info {
  const char *name;
  uint8_t n_src;
  uint8_t commutative;
  uint8_t rule;    // lb_srule
  uint8_t dtypes;  // of the sources: LB_SD_...
} lb_sop_info;
extern const lb_sop_info lb_sop_infos[LB_S_COUNT];

typedef struct lb_snode {
  uint8_t op;     // lb_sop
  uint8_t dtype;  // of the value
  uint8_t arg;    // INPUT, SCALAR: its number; ACC: lb_acc; else 0
  uint8_t n_src;
  uint8_t src[4];  // nodes
} lb_snode;

typedef struct lb_soperand {
  uint8_t dtype;
  uint8_t layout;  // lb_layout
  uint8_t node;    // outputs: whose value; inputs: 0
  uint8_t reserved;
} lb_soperand;

typedef struct lb_spec {
  uint8_t form;
  uint8_t n_nodes, n_in, n_out, n_scalars;
  uint8_t reserved[3];
  lb_soperand in[LB_SPEC_MAX_IN];
  lb_soperand out[LB_SPEC_MAX_OUT];
  lb_snode nodes[LB_SPEC_MAX_NODES];
} lb_spec;
_Static_assert(sizeof(lb_spec) == 8 + 4 * 16 + 8 * 48, "no padding: hashed");

// -- building: the first mistake is kept, and finish tells it

typedef struct lb_spec_builder {
  lb_spec spec;     // nodes in order of the calls
  lb_status error;  // owned
} lb_spec_builder;

#define LB_SPEC_NO_NODE UINT8_MAX  // what a call that fails returns

void lb_spec_begin(lb_spec_builder *b, lb_form form);
// Each returns a node. Inputs and scalars get numbers in order of the calls.
uint8_t lb_spec_input(lb_spec_builder *b, lb_dtype t, lb_layout layout);
uint8_t lb_spec_scalar(lb_spec_builder *b, lb_dtype t);
// `t` is the dtype of the value.
uint8_t lb_spec_node(lb_spec_builder *b, lb_sop op, lb_dtype t,
                     const uint8_t *src, uint8_t n);
uint8_t lb_spec_acc(lb_spec_builder *b, lb_acc acc, lb_dtype t);
void lb_spec_output(lb_spec_builder *b, uint8_t node, lb_layout layout);
// Brings the spec into canonical form (a ROWS without reductions is a MAP) and
// verifies it. Numbers of inputs, scalars and outputs do not change.
// LB_UNSUPPORTED when a limit is exceeded; the builder is empty afterwards.
lb_status lb_spec_finish(lb_spec_builder *b, lb_spec *out);

// LB_INVALID unless all that is said above holds. Any bytes may be given.
lb_status lb_spec_verify(const lb_spec *s);
size_t lb_spec_bytes(const lb_spec *s);  // used, from the start: what is hashed
bool lb_spec_equal(const lb_spec *a, const lb_spec *b);
void lb_spec_print(const lb_spec *s, lb_strbuf *out);  // one line, readable

// Along which dims the value of each node changes: bits of lb_svaries.
typedef enum lb_svaries { LB_VARIES_ROWS = 1, LB_VARIES_COLS = 2 } lb_svaries;
void lb_spec_varies(const lb_spec *s, uint8_t out[LB_SPEC_MAX_NODES]);

// -- facts: what code takes for granted, and how it was told to be written

typedef enum lb_sdim {
  LB_DIM_ROWS,
  LB_DIM_COLS,
  LB_DIM_K,
  LB_DIM_LEN,
  LB_DIM_STEPS,
  LB_SDIMS
} lb_sdim;
// How many of them a form has: the first 2, 3 (MATMUL), 4 (ATTENTION) or 5
// (CONV; WINDOW, which does not read k).
int lb_spec_dims(const lb_spec *s);
static inline bool lb_spec_has_taps(const lb_spec *s) {
  return s->form == LB_FORM_CONV || s->form == LB_FORM_WINDOW;
}
// Inputs that ACC multiplies, or that are summed: no node reads them.
int lb_spec_factors(const lb_spec *s);
// Whether PICK reads the input, which is not walked along rows then; whether
// PICK is told by it where to read.
bool lb_spec_is_gathered(const lb_spec *s, uint8_t input);
bool lb_spec_is_row_index(const lb_spec *s, uint8_t input);

typedef enum lb_sfact_kind {
  LB_SFACT_NONE,
  LB_ASSUME_MULTIPLE,  // the dim is a multiple of value
  LB_ASSUME_EQUAL,     // the dim is value
  LB_ASSUME_AT_MOST,   // the dim is not greater than value
  LB_CHOOSE_TILE,      // that much of the dim at once
  LB_SFACT_KINDS,
} lb_sfact_kind;

typedef struct lb_sfact {
  uint8_t kind;  // lb_sfact_kind
  uint8_t dim;   // lb_sdim
  uint16_t value;
} lb_sfact;

#define LB_MAX_FACTS 20  // every kind of every dim

typedef struct lb_facts {  // {0}: none. Sorted, one of a kind and dim
  lb_sfact list[LB_MAX_FACTS];
} lb_facts;

// Adds or replaces. Multiples and tiles are not 0.
void lb_facts_add(lb_facts *f, lb_sfact_kind kind, lb_sdim dim, uint16_t value);
lb_status lb_facts_verify(const lb_facts *f);  // any bytes
// True if nothing but divisibility is assumed: one compilation serves every
// shape, or every divisible one.
bool lb_facts_reusable(const lb_facts *f);
// True if every assumption holds at these sizes.
bool lb_facts_hold(const lb_facts *f, const int64_t dims[LB_SDIMS]);
// The value of a fact, or `dflt`.
int lb_facts_get(const lb_facts *f, lb_sfact_kind kind, lb_sdim dim, int dflt);
// True if the dim is sure to be a multiple of n.
bool lb_facts_divides(const lb_facts *f, lb_sdim dim, int n);
// The facts to ask for at these sizes, on a machine with vectors of `lanes`
// float32. They hold, and there are at most LB_MAX_FACTS_OF for one spec,
// whatever sizes come.
lb_facts lb_facts_of(const lb_spec *s, uint32_t lanes,
                     const int64_t dims[LB_SDIMS]);
// The same; with `reusable` they are that wherever such a kernel serves.
lb_facts lb_facts_prefer(const lb_spec *s, uint32_t lanes,
                         const int64_t dims[LB_SDIMS], bool reusable);
// Whether it is one of the kinds that decide how fast models are: convolutions,
// products, attention and softmax, whatever stands around them.
bool lb_spec_is_critical(const lb_spec *s);
// Why no reusable kernel serves, where none does; else NULL.
const char *lb_spec_needs_bound(const lb_spec *s);
#define LB_MAX_FACTS_OF 40
void lb_facts_print(const lb_facts *f, lb_strbuf *out);  // "cols%64 rows:6"

// -- keys

// Hash of spec, facts, target text and generator version: equal keys, same
// code. Nothing of the host goes in.
lb_hash128 lb_spec_key(const lb_spec *s, const lb_facts *f, const char *target,
                       uint64_t generator);

#endif
