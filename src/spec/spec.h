// spec/spec.h -- what a kernel computes, independent of sizes.
//
// A spec is a small DAG of operations in a *form*: the loop nest around it.
// Sizes, strides and scalars are always arguments of the kernel, so that any
// kernel of a spec can replace another between two steps. Specs are shared by
// the library and limber-jit; they are plain bytes, comparable and hashable.
//
// Forms, over rows x cols (outer loops run around the kernel):
//   ELTWISE     each output element is computed from the input elements at the
//               same position. GATHER_ROW reads another row: its sources are
//               the input and the row index, which is the same for all columns
//   ROW_REDUCE  the same, and reductions along a row (RSUM, ...): softmax and
//               norms
//   MATMUL      rows M, cols N: ACC is the sum over k of a[m,k] * b[k,n], then
//               as in ELTWISE for each element of the product. Input 0 is
//               operand A, input 1 operand B; only ACC reads them, and
//               multiplies them in its dtype
//   CONV        like MATMUL, but a row of A and a column of B consist of
//               taps_y * taps_x pieces of k elements. ACC is the sum over
//               y, x, k of a[m,y,x,k] * b[y,x,k,n]. A is FULL, B is in panels.
//               Piece (y, x) starts y * tap_stride_y + x * tap_stride_x
//               elements after the first; A and B have their own tap strides
//   WINDOW      ACC combines the elements of input 0 in a window of taps_y *
//               taps_x: x[m,y,x,n], likewise with tap strides. Its kind
//               (lb_acc) says how: DOT multiplies them by those of input 1,
//               w[y,x,n], and sums; the others combine them. Both inputs are
//               FULL; w does not advance along rows
//   ATTENTION   rows M, cols N, and L keys: inputs 0, 1 and 2 are q [M x K],
//               k [L x K] and v [L x N]. ACC is the sum over k of
//               q[m,k] * k[l,k], from which nodes compute the score at (m, l);
//               further inputs are M x L. The output's node is the score, and
//               the output is the sum over l of softmax(score)[m,l] * v[l,n]
//
// (1) Nodes are in dependency order: sources are earlier nodes. INPUT nodes
//     come first, one for each input in order of their numbers, then SCALAR
//     nodes likewise. Forms with an accumulator (MATMUL, CONV, WINDOW,
//     ATTENTION) have one ACC, the others none. Reductions occur only in
//     ROW_REDUCE, which has at least one. ATTENTION has one output, of ACC's
//     dtype, which is a float, and no COLS. ACC of WINDOW is a float.
//     GATHER_ROW occurs only in ELTWISE. Its input is FULL, and only GATHER_ROW
//     reads it; the row index is an int64 input, PER_ROW or BROADCAST, or the
//     sum of two.
// (2) Specs of equal meaning, as far as it is cheap to detect, have equal
//     bytes: unused bytes are zero, equal nodes are merged, dead nodes are
//     removed, sources of commutative operations are ordered. Nodes are ordered
//     by depth, then by their bytes.
// (3) dtypes are those of src/base/dtype.h. Arithmetic is done in the node's
//     dtype; CAST changes it. float16 and bfloat16 are storage dtypes: they can
//     be read, cast and written only.
//
// Results are bit-identical for all implementations, except for mathematical
// functions:
// (4) A reduction has 64 lanes: element j of a row belongs to lane j % 64, a
//     lane combines its elements in order (x0, then op(x0, x1), ...), and lane
//     i is combined with lane i + n/2 for n = 64, 32, ..., 2. Lanes without an
//     element do not take part. An empty row gives 0, 1, -inf (or the min
//     integer), inf (or the max integer). A row of more than LB_SUM_COLS
//     elements is split into blocks of that size. Each lane of a float sum
//     starts anew with each block; its block sums are added in order in
//     float64, and that total is rounded before lanes are combined.
// (5) A sum of products starts with a[m,0] * b[0,n]; each further product is
//     added in the order of k (of y, x, k), for floats by one FMA. Without
//     products it is 0. If B is PANEL_K2 there are two such sums, of the even
//     and of the odd k, which are added at the end. If B is PANEL_K4, ACC is
//     int32, both operands are int8 or uint8, and A is FULL. WINDOW combines
//     likewise: x0, then op(that, x1), ...; without elements it gives the
//     values of (4). If SUM or SQUARES has more than LB_SUM_TAPS elements, they
//     are split into blocks: of LB_SUM_TAPS taps in x, or of as many rows of
//     taps as have no more than that. The sums of LB_SUM_BLOCKS blocks are
//     added in order; those sums are added in order in float64 and rounded at
//     the end.
// (6) ATTENTION processes keys in blocks of 256. Each row has a maximum, a sum
//     and N totals, initially -inf, 0 and 0. A block updates them:
//       max' = max of `max` and the scores, ignoring NaN;
//       base = max', or 0 if that is -inf;  c = exp(max - base);
//       p[l] = exp(score[l] - base);
//       sum' = fma(sum, c, the sum of p by rule (4));
//       total'[n] = fma(total[n], c, the sum of p[l] * v[l,n]), which starts
//                   with 0; each product is added in the order of l, by FMA.
//     The output is total * (1 / sum), or total * 1 if sum is 0: a row whose
//     scores are all -inf gives 0, and so does L = 0. exp is that of
//     spec/exp.h; in float64 it is any.
//
// An output may use the same memory as an input of the same dtype, layout and
// strides, except for inputs that ACC reads, inputs of ATTENTION and of
// GATHER_ROW. Otherwise outputs overlap nothing.
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
#define LB_SUM_COLS 16384   // elements of a row in a block: 256 for each lane
#define LB_SUM_TAPS 25      // elements of a window in a block
#define LB_SUM_BLOCKS 16    // blocks of LB_SUM_TAPS that are summed at once
#define LB_PANEL_COLS 16    // columns of a panel: PANEL and PANEL_K4
#define LB_PANEL_K2_COLS 8  // columns of a panel: PANEL_K2
#define LB_SPEC_KEYS 256    // keys of a block of ATTENTION
#define LB_SHORT_COLS 32    // max columns of rows reduced several at a time

typedef enum lb_form {
  LB_FORM_ELTWISE,
  LB_FORM_ROW_REDUCE,
  LB_FORM_MATMUL,
  LB_FORM_ATTENTION,
  LB_FORM_CONV,
  LB_FORM_WINDOW,
  LB_FORM_COUNT,
} lb_form;

typedef enum lb_acc {  // how ACC combines; other kinds than DOT: in WINDOW only
  LB_ACC_DOT,
  LB_ACC_SUM,
  LB_ACC_MAX,
  LB_ACC_MIN,
  LB_ACC_SQUARES,  // sum of squares
  LB_ACCS
} lb_acc;

// The layout of an operand over rows x cols (A: rows x k, B: k x cols; for
// ATTENTION see above).
typedef enum lb_layout {
  LB_LAYOUT_FULL,       // columns contiguous, rows at any stride
  LB_LAYOUT_PER_COL,    // one row for all rows: a bias. Inputs only
  LB_LAYOUT_PER_ROW,    // one element per row, at any stride
  LB_LAYOUT_BROADCAST,  // one element. Inputs only
  LB_LAYOUT_STRIDED,    // rows and columns at any stride
  LB_LAYOUT_PANEL,      // operand B: [N/16][K][16], zero-padded: spec/panel.h
  LB_LAYOUT_PANEL_K2,   // interleaved by 2 along K; K % 2 == 0:
                        // [N/8][K/2][8][2]
  LB_LAYOUT_PANEL_K4,   // int8, interleaved by 4 along K for VNNI; K % 4 == 0:
                        // [N/16][K/4][16][4]
  LB_LAYOUT_COUNT,
} lb_layout;

// Columns of a panel of B; 0: the layout has no panels.
static inline int lb_panel_cols(uint8_t layout) {
  if (layout == LB_LAYOUT_PANEL_K2) return LB_PANEL_K2_COLS;
  bool whole = layout == LB_LAYOUT_PANEL || layout == LB_LAYOUT_PANEL_K4;
  return whole ? LB_PANEL_COLS : 0;
}
// By how many K the layout is interleaved; K is a multiple of that.
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
  LB_SR_SELECT,      // bool, then like SAME
  LB_SR_CAST,        // any to any other
  LB_SR_GATHER_ROW,  // any and int64, then the first
  LB_SR_REDUCE,      // like SAME; along a row
} lb_srule;

enum {  // classes of dtypes
  LB_SD_FLOAT = 1,
  LB_SD_INT = 2,
  LB_SD_BOOL = 4,
  LB_SD_NUM = LB_SD_FLOAT | LB_SD_INT,
  LB_SD_BITS = LB_SD_INT | LB_SD_BOOL,
  LB_SD_ALL = LB_SD_NUM | LB_SD_BOOL,
};
unsigned lb_sdtype_kind(lb_dtype t);  // 0 for storage-only dtypes

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
  uint8_t node;    // outputs: the node of its value; inputs: 0
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

// -- building: the first error is kept until lb_spec_finish returns it

typedef struct lb_spec_builder {
  lb_spec spec;     // nodes in order of the calls
  lb_status error;  // owned
} lb_spec_builder;

#define LB_SPEC_NO_NODE UINT8_MAX  // returned by calls that fail

void lb_spec_begin(lb_spec_builder *b, lb_form form);
// Each returns a node. Inputs and scalars are numbered in order of the calls.
uint8_t lb_spec_input(lb_spec_builder *b, lb_dtype t, lb_layout layout);
uint8_t lb_spec_scalar(lb_spec_builder *b, lb_dtype t);
// `t` is the dtype of the value.
uint8_t lb_spec_node(lb_spec_builder *b, lb_sop op, lb_dtype t,
                     const uint8_t *src, uint8_t n);
uint8_t lb_spec_acc(lb_spec_builder *b, lb_acc acc, lb_dtype t);
void lb_spec_output(lb_spec_builder *b, uint8_t node, lb_layout layout);
// Converts the spec to canonical form (a ROW_REDUCE without reductions becomes
// an ELTWISE) and verifies it. Numbers of inputs, scalars and outputs do not
// change. LB_UNSUPPORTED if a limit is exceeded; the builder is empty
// afterwards.
lb_status lb_spec_finish(lb_spec_builder *b, lb_spec *out);

// LB_INVALID unless all rules above hold. Accepts any bytes.
lb_status lb_spec_verify(const lb_spec *s);
size_t lb_spec_bytes(const lb_spec *s);  // bytes in use, which are hashed
bool lb_spec_equal(const lb_spec *a, const lb_spec *b);
void lb_spec_print(const lb_spec *s, lb_strbuf *out);  // one line of text

// Along which dims the value of each node varies: bits of lb_svaries.
typedef enum lb_svaries { LB_VARIES_ROWS = 1, LB_VARIES_COLS = 2 } lb_svaries;
void lb_spec_varies(const lb_spec *s, uint8_t out[LB_SPEC_MAX_NODES]);

// -- facts: what code may assume about sizes, and which tile it uses

typedef enum lb_sdim {
  LB_DIM_ROWS,
  LB_DIM_COLS,
  LB_DIM_K,
  LB_DIM_TAPS_Y,  // CONV, WINDOW: kernel height, in taps
  LB_DIM_TAPS_X,  // CONV, WINDOW: kernel width, in taps
  LB_SDIMS,
  LB_DIM_KEYS = LB_DIM_TAPS_Y,  // ATTENTION: number of keys; the fourth dim,
                                // as TAPS_Y is of CONV and WINDOW
} lb_sdim;
// How many of them a form has: the first 2, 3 (MATMUL), 4 (ATTENTION) or 5
// (CONV; WINDOW, which does not read k).
int lb_spec_dims(const lb_spec *s);
static inline bool lb_spec_has_taps(const lb_spec *s) {
  return s->form == LB_FORM_CONV || s->form == LB_FORM_WINDOW;
}
// Number of inputs that ACC reads (operands of a matmul, the window's inputs):
// no other node reads them.
int lb_spec_factors(const lb_spec *s);
// Whether GATHER_ROW reads rows of the input, which then does not advance along
// rows; whether the input is a row index of GATHER_ROW.
bool lb_spec_is_gathered(const lb_spec *s, uint8_t input);
bool lb_spec_is_row_index(const lb_spec *s, uint8_t input);

typedef enum lb_sfact_kind {
  LB_SFACT_NONE,
  LB_ASSUME_MULTIPLE,  // the dim is a multiple of value
  LB_ASSUME_EQUAL,     // the dim is value
  LB_ASSUME_AT_MOST,   // the dim is at most value
  LB_CHOOSE_TILE,      // tile size along the dim
  LB_SFACT_KINDS,
} lb_sfact_kind;

typedef struct lb_sfact {
  uint8_t kind;  // lb_sfact_kind
  uint8_t dim;   // lb_sdim
  uint16_t value;
} lb_sfact;

#define LB_MAX_FACTS 20  // every kind of every dim

typedef struct lb_facts {  // {0}: none. Sorted; at most one per kind and dim
  lb_sfact list[LB_MAX_FACTS];
} lb_facts;

// Adds or replaces a fact. Multiples and tiles must not be 0.
void lb_facts_add(lb_facts *f, lb_sfact_kind kind, lb_sdim dim, uint16_t value);
lb_status lb_facts_verify(const lb_facts *f);  // accepts any bytes
// Whether only divisibility is assumed: one compilation serves every shape, or
// every divisible one.
bool lb_facts_reusable(const lb_facts *f);
// Whether every assumption holds at these sizes.
bool lb_facts_hold(const lb_facts *f, const int64_t dims[LB_SDIMS]);
// The value of a fact, or `dflt`.
int lb_facts_get(const lb_facts *f, lb_sfact_kind kind, lb_sdim dim, int dflt);
// Whether the dim is known to be a multiple of n.
bool lb_facts_divides(const lb_facts *f, lb_sdim dim, int n);
// The facts to request at these sizes, on a machine with vectors of `lanes`
// float32. They hold at these sizes, and over all sizes there are at most
// LB_MAX_FACTS_OF different ones for one spec.
lb_facts lb_facts_of(const lb_spec *s, uint32_t lanes,
                     const int64_t dims[LB_SDIMS]);
// The same; with `reusable`, facts are reusable wherever such a kernel exists.
lb_facts lb_facts_prefer(const lb_spec *s, uint32_t lanes,
                         const int64_t dims[LB_SDIMS], bool reusable);
// Whether it is one of the kinds that dominate the run time of models:
// convolution, matmul, attention and softmax, whatever is fused with them.
bool lb_spec_is_critical(const lb_spec *s);
// The reason why a spec has no reusable kernel; NULL if it has one.
const char *lb_spec_needs_specialised(const lb_spec *s);
#define LB_MAX_FACTS_OF 40
void lb_facts_print(const lb_facts *f, lb_strbuf *out);  // "cols%64 rows:6"

// -- keys

// Hash of spec, facts, target text and generator version. Equal keys mean equal
// code. Nothing about this machine is included.
lb_hash128 lb_spec_key(const lb_spec *s, const lb_facts *f, const char *target,
                       uint64_t generator);

#endif
