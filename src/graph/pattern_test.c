// graph/pattern_test.c -- patterns that exporters decompose are recognised, and
// similar ones are not.
#include "graph/text_test.h"

#define X "in x float32[b,8]\n"

static void becomes_one(const char *source, const char *line) {
  lb_strbuf s = {0};
  lb_strbuf_puts(&s, "in x: float32[b,8]\n");
  lb_strbuf_puts(&s, line);
  lb_strbuf_puts(&s, "\nout y\n");
  becomes(source, NULL, lb_strbuf_str(&s));
  lb_strbuf_fini(&s);
}

// -- GELU --------------------------------------------------------------------

static void gelu_is_matched_in_any_order(void **state) {
  (void)state;
  const char *gelu = "y: float32[b,8] = Gelu(x)";
  becomes_one(X
              "d = Div(x, 1.4142135381698608)\n"
              "e = Erf(d)\n"
              "a = Add(e, 1.0)\n"
              "m = Mul(x, a)\n"
              "y = Mul(m, 0.5)\n"
              "out y\n",
              gelu);
  becomes_one(X
              "h = Mul(0.5, x)\n"
              "d = Mul(x, 0.70710678)\n"
              "e = Erf(d)\n"
              "a = Add(1.0, e)\n"
              "y = Mul(h, a)\n"
              "out y\n",
              gelu);
  becomes_one(X
              "d = Div(x, 1.4142135)\n"
              "e = Erf(d)\n"
              "a = Add(e, 1.0)\n"
              "h = Div(a, 2.0)\n"
              "y = Mul(h, x)\n"
              "out y\n",
              gelu);
  becomes_one(X  // a constant rounded to float16
              "d = Div(x, 1.4140625)\n"
              "e = Erf(d)\n"
              "a = Add(e, 1.0)\n"
              "m = Mul(x, a)\n"
              "y = Mul(m, 0.5)\n"
              "out y\n",
              gelu);
}

static void tanh_gelu_is_found(void **state) {
  (void)state;
  const char *gelu = "y: float32[b,8] = Gelu(x) {approximate=\"tanh\"}";
  becomes_one(X
              "c = Pow(x, 3.0)\n"
              "k = Mul(c, 0.044715)\n"
              "s = Add(x, k)\n"
              "u = Mul(s, 0.7978845608)\n"
              "t = Tanh(u)\n"
              "a = Add(t, 1.0)\n"
              "h = Mul(x, 0.5)\n"
              "y = Mul(h, a)\n"
              "out y\n",
              gelu);
  becomes_one(X
              "v = Mul(x, 0.044715)\n"
              "q = Mul(v, x)\n"
              "p = Add(q, 1.0)\n"
              "r = Mul(x, 0.7978845608)\n"
              "u = Mul(r, p)\n"
              "t = Tanh(u)\n"
              "a = Add(1.0, t)\n"
              "m = Mul(x, a)\n"
              "y = Mul(0.5, m)\n"
              "out y\n",
              gelu);
}

static void near_misses_of_gelu_are_unchanged(void **state) {
  (void)state;
  stays(X  // another scale
        "d = Div(x, 1.5)\n"
        "e = Erf(d)\n"
        "a = Add(e, 1.0)\n"
        "m = Mul(x, a)\n"
        "y = Mul(m, 0.5)\n"
        "out y\n");
  stays(X  // another input
        "in z float32[b,8]\n"
        "d = Div(x, 1.4142135)\n"
        "e = Erf(d)\n"
        "a = Add(e, 1.0)\n"
        "m = Mul(z, a)\n"
        "y = Mul(m, 0.5)\n"
        "out y\n");
  stays(X  // erf is a result
        "d = Div(x, 1.4142135)\n"
        "e = Erf(d)\n"
        "a = Add(e, 1.0)\n"
        "m = Mul(x, a)\n"
        "y = Mul(m, 0.5)\n"
        "out y e\n");
  stays(X  // half of it has another reader
        "d = Div(x, 1.4142135)\n"
        "e = Erf(d)\n"
        "a = Add(e, 1.0)\n"
        "m = Mul(x, a)\n"
        "y = Mul(m, 0.5)\n"
        "z = Exp(m)\n"
        "out y z\n");
  stays(X  // the constant adds an axis
        "const h float32[1,1,1] 0.5\n"
        "d = Div(x, 1.4142135)\n"
        "e = Erf(d)\n"
        "a = Add(e, 1.0)\n"
        "m = Mul(x, a)\n"
        "y = Mul(m, h)\n"
        "out y\n");
}

// -- HardSwish, SiLU ---------------------------------------------------------

static void hard_swish_is_found(void **state) {
  (void)state;
  const char *hard = "y: float32[b,8] = HardSwish(x)";
  becomes_one(X
              "const three float32[1] 3\n"
              "const six float32[1] 6\n"
              "a = Add(x, three)\n"
              "c = Clip(a, 0.0, 6.0)\n"
              "m = Mul(x, c)\n"
              "y = Div(m, six)\n"
              "out y\n",
              hard);
  becomes_one(X
              "a = Add(x, 3.0)\n"
              "c = Clip(a, 0.0, 6.0)\n"
              "d = Div(c, 6.0)\n"
              "y = Mul(x, d)\n"
              "out y\n",
              hard);
  becomes_one(X
              "h = HardSigmoid(x) {alpha=0.16666667, beta=0.5}\n"
              "y = Mul(h, x)\n"
              "out y\n",
              hard);
}

static void near_misses_of_hard_swish_are_unchanged(void **state) {
  (void)state;
  stays(X
        "a = Add(x, 3.0)\n"
        "c = Clip(a, 0.0, 5.0)\n"
        "m = Mul(x, c)\n"
        "y = Div(m, 6.0)\n"
        "out y\n");
  stays(X
        "h = HardSigmoid(x)\n"
        "y = Mul(h, x)\n"
        "out y\n");
  stays(X
        "a = Add(x, 3.0)\n"
        "c = Clip(a, 0.0, 6.0)\n"
        "y = Mul(x, c)\n"
        "out y\n");
}

static void silu_is_found(void **state) {
  (void)state;
  becomes_one(X
              "s = Sigmoid(x)\n"
              "y = Mul(x, s)\n"
              "out y\n",
              "y: float32[b,8] = Swish(x) {alpha=1}");
  becomes_one(X
              "k = Mul(x, 1.5)\n"
              "s = Sigmoid(k)\n"
              "y = Mul(s, x)\n"
              "out y\n",
              "y: float32[b,8] = Swish(x) {alpha=1.5}");
}

static void near_misses_of_silu_are_unchanged(void **state) {
  (void)state;
  stays(X  // a gate
        "in z float32[b,8]\n"
        "s = Sigmoid(z)\n"
        "y = Mul(x, s)\n"
        "out y\n");
  stays(X  // the sigmoid has two readers
        "s = Sigmoid(x)\n"
        "y = Mul(x, s)\n"
        "z = Exp(s)\n"
        "out y z\n");
  stays(X
        "s = Sigmoid(x)\n"
        "h = Mul(s, 0.5)\n"
        "y = Mul(x, h)\n"
        "out y\n");
}

// -- layer normalisation -----------------------------------------------------

#define LN_PARAMS          \
  "const w float32[8] 1\n" \
  "const v float32[8] 2\n"

static void layer_norm_is_found(void **state) {
  (void)state;
  const char *norm =
      "y: float32[b,8] = LayerNormalization(x, w:float32[8], v:float32[8]) "
      "{axis=-1, epsilon=0.125}";
  becomes_one(X LN_PARAMS
              "m = ReduceMean(x, [-1])\n"
              "d = Sub(x, m)\n"
              "p = Pow(d, 2.0)\n"
              "u = ReduceMean(p, [1])\n"
              "e = Add(u, 0.125)\n"
              "s = Sqrt(e)\n"
              "n = Div(d, s)\n"
              "k = Mul(n, w)\n"
              "y = Add(k, v)\n"
              "out y\n",
              norm);
  becomes_one(X LN_PARAMS
              "m = ReduceMean(x, [-1])\n"
              "d = Sub(x, m)\n"
              "dd = Sub(x, m)\n"
              "p = Mul(dd, dd)\n"
              "u = ReduceMean(p, [-1])\n"
              "e = Add(0.125, u)\n"
              "s = Sqrt(e)\n"
              "r = Reciprocal(s)\n"
              "n = Mul(r, d)\n"
              "k = Mul(w, n)\n"
              "y = Add(v, k)\n"
              "out y\n",
              norm);
}

static void layer_norm_over_two_axes_without_bias_is_found(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4,8]\n"
      "const w float32[4,8] 1\n"
      "m = ReduceMean(x, [1,2])\n"
      "d = Sub(x, m)\n"
      "p = Pow(d, 2.0)\n"
      "u = ReduceMean(p, [-1,-2])\n"
      "e = Add(u, 0.5)\n"
      "s = Sqrt(e)\n"
      "n = Div(d, s)\n"
      "y = Mul(n, w)\n"
      "out y\n",
      NULL,
      "in x: float32[b,4,8]\n"
      "y: float32[b,4,8] = LayerNormalization(x, w:float32[4,8]) "
      "{axis=-2, epsilon=0.5}\n"
      "out y\n");
}

#define LN(axes, last)                    \
  X LN_PARAMS "m = ReduceMean(x, " axes   \
              ")\n"                       \
              "d = Sub(x, m)\n"           \
              "p = Pow(d, 2.0)\n"         \
              "u = ReduceMean(p, [-1])\n" \
              "e = Add(u, 0.125)\n"       \
              "s = Sqrt(e)\n"             \
              "n = Div(d, s)\n" last

static void near_misses_of_layer_norm_are_unchanged(void **state) {
  (void)state;
  stays(LN("[0]", "y = Mul(n, v)\nout y\n"));
  stays(LN("[-1]", "y = Mul(n, v)\nout y d\n"));
  stays(LN("[-1]", "y = Mul(n, v)\nz = Exp(s)\nout y z\n"));
  stays(LN("[-1]", "y = Mul(n, 2.0)\nout y\n"));
  stays(LN("[-1]", "out n\n"));
}

// -- attention ---------------------------------------------------------------

// Whether the optimised source has this part in its dump.
static bool optimized_has(const char *source, const char *part) {
  lb_strbuf s = {0};
  lb_graph *g = graph_of(source);
  must(lb_graph_optimize(g, NULL));
  lb_graph_dump(g, &s);
  must(lb_strbuf_status(&s));
  bool found = strstr(lb_strbuf_str(&s), part) != NULL;
  lb_strbuf_fini(&s);
  lb_graph_free(g);
  return found;
}

#define QKV                  \
  "in q float32[b,2,s,16]\n" \
  "in k float32[b,2,t,16]\n" \
  "in v float32[b,2,t,16]\n"
#define QKV_DUMP              \
  "in q: float32[b,2,s,16]\n" \
  "in k: float32[b,2,t,16]\n" \
  "in v: float32[b,2,t,16]\n"

static void attention_is_found(void **state) {
  (void)state;
  becomes(QKV
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "a = MatMul(q, kt)\n"
          "c = Div(a, 4.0)\n"
          "p = Softmax(c) {axis=3, flatten=1}\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "y: float32[b,2,s,16] = Attention(q, k, v) {scale=0.25}\n"
          "out y\n");
}

static void attention_with_mask_and_split_scale_is_found(void **state) {
  (void)state;
  becomes(QKV
          "in m float32[b,1,s,t]\n"
          "qs = Mul(q, 0.5)\n"
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "ks = Mul(kt, 0.5)\n"
          "a = MatMul(qs, ks)\n"
          "c = Add(m, a)\n"
          "p = Softmax(c)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: float32[b,1,s,t]\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, m) {scale=0.25}\n"
          "out y\n");
}

static void attention_with_a_bool_mask_is_found(void **state) {
  (void)state;
#define FLAGS(low)                           \
  QKV "in m bool[b,1,s,t]\n"                 \
      "kt = Transpose(k) {perm=[0,1,3,2]}\n" \
      "a = MatMul(q, kt)\n"                  \
      "c = Where(m, a, " low                 \
      ")\n"                                  \
      "p = Softmax(c)\n"                     \
      "y = MatMul(p, v)\n"                   \
      "out y\n"
  becomes(FLAGS("-1.0e999"), NULL,
          QKV_DUMP
          "in m: bool[b,1,s,t]\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, m) {scale=1}\n"
          "out y\n");
  becomes(FLAGS("-3.4028235e38"), NULL,
          QKV_DUMP
          "in m: bool[b,1,s,t]\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, m) {scale=1, "
          "masked=-3.40282347e+38}\n"
          "out y\n");
  becomes(FLAGS("-1.0e4"), NULL,
          QKV_DUMP
          "in m: bool[b,1,s,t]\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, m) {scale=1, "
          "masked=-10000}\n"
          "out y\n");
  becomes(QKV
          "in m bool[b,1,s,t]\n"
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "a = MatMul(q, kt)\n"
          "c = Where(m, -1.0e999, a)\n"
          "p = Softmax(c)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: bool[b,1,s,t]\n"
          "y.Not: bool[b,1,s,t] = Not(m)\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, y.Not) {scale=1}\n"
          "out y\n");
  becomes(QKV
          "in m bool[b,1,s,t]\n"
          "n = Not(m)\n"
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "a = MatMul(q, kt)\n"
          "c = Where(n, -1.0e9, a)\n"
          "p = Softmax(c)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: bool[b,1,s,t]\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, m) {scale=1, "
          "masked=-1e+09}\n"
          "out y\n");
  stays(FLAGS("1.0"));
}

static void attention_with_two_masks_is_found(void **state) {
  (void)state;
  becomes(QKV
          "in m float32[b,1,1,t]\n"
          "in o float32[1,2,s,t]\n"
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "a = MatMul(q, kt)\n"
          "c = Add(a, o)\n"
          "d = Add(m, c)\n"
          "p = Softmax(d)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: float32[b,1,1,t]\n"
          "in o: float32[1,2,s,t]\n"
          "y.Add: float32[b,2,s,t] = Add(o, m)\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, y.Add) {scale=1}\n"
          "out y\n");
#define TWO_MASKS(low)                       \
  QKV "in m bool[1,1,s,t]\n"                 \
      "in o float32[b,1,1,t]\n"              \
      "kt = Transpose(k) {perm=[0,1,3,2]}\n" \
      "a = MatMul(q, kt)\n"                  \
      "c = Where(m, a, " low                 \
      ")\n"                                  \
      "d = Add(c, o)\n"                      \
      "p = Softmax(d)\n"                     \
      "y = MatMul(p, v)\n"                   \
      "out y\n"
  becomes(TWO_MASKS("-3.4028235e38"), NULL,
          QKV_DUMP
          "in m: bool[1,1,s,t]\n"
          "in o: float32[b,1,1,t]\n"
          "y.Where: float32[1,1,s,t] = Where(m, 0, -3.40282347e+38)\n"
          "y.Add: float32[b,1,s,t] = Add(y.Where, o)\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, y.Add) {scale=1}\n"
          "out y\n");
  stays(TWO_MASKS("-1.0e9"));  // the score and the other mask still matter
  becomes(QKV
          "in m bool[1,1,s,t]\n"
          "in o float32[b,1,1,t]\n"
          "kt = Transpose(k) {perm=[0,1,3,2]}\n"
          "a = MatMul(q, kt)\n"
          "c = Add(o, a)\n"
          "d = Where(m, c, -3.4028235e38)\n"
          "p = Softmax(d)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: bool[1,1,s,t]\n"
          "in o: float32[b,1,1,t]\n"
          "y.Where: float32[b,1,s,t] = Where(m, o, -3.40282347e+38)\n"
          "y: float32[b,2,s,16] = Attention(q, k, v, y.Where) {scale=1}\n"
          "out y\n");
}

// The causal mask is cut out of a constant, so it has min(t,64) columns;
// nothing is known about the columns of the other mask.
static void attention_with_a_cut_causal_mask_is_found(void **state) {
  (void)state;
#define CUT                              \
  "in q float32[b,2,s,16]\n"             \
  "in past float32[b,2,r,16]\n"          \
  "in new float32[b,2,s,16]\n"           \
  "in o float32[b,1,1,u]\n"              \
  "const c bool[1,1,64,64] 1\n"          \
  "k = Concat(past, new) {axis=2}\n"     \
  "nr = Shape(past) {start=2, end=3}\n"  \
  "nk = Shape(k) {start=2, end=3}\n"     \
  "rows = Slice(c, nr, nk, [2])\n"       \
  "m = Slice(rows, [0], nk, [3])\n"      \
  "kt = Transpose(k) {perm=[0,1,3,2]}\n" \
  "a = MatMul(q, kt)\n"                  \
  "masked = Where(m, a, -3.4028235e38)\n"
  assert_true(optimized_has(
      CUT
      "d = Add(masked, o)\n"
      "p = Softmax(d)\n"
      "y = MatMul(p, k)\n"
      "out y\n",
      "y: float32[b,2,s,16] = Attention(q, k, k, y.Add) {scale=1}\n"));
  assert_false(optimized_has(  // Attention would pad a mask that is too short
      CUT
      "p = Softmax(masked)\n"
      "y = MatMul(p, k)\n"
      "out y\n",
      "Attention"));
  assert_false(optimized_has(  // the masks may repeat a single key
      QKV
      "in w float32[b,2,u,16]\n"
      "in m bool[1,1,1,u]\n"
      "in o float32[b,1,1,u]\n"
      "kt = Transpose(k) {perm=[0,1,3,2]}\n"
      "a = MatMul(q, kt)\n"
      "c = Where(m, a, -3.4028235e38)\n"
      "d = Add(c, o)\n"
      "p = Softmax(d)\n"
      "y = MatMul(p, w)\n"
      "out y\n",
      "Attention"));
}

static void attention_with_nan_replaced_is_found(void **state) {
  (void)state;
#define NO_NAN(zero, of)                     \
  QKV "kt = Transpose(k) {perm=[0,1,3,2]}\n" \
      "a = MatMul(q, kt)\n"                  \
      "p = Softmax(a)\n"                     \
      "n = IsNaN(" of                        \
      ")\n"                                  \
      "w = Where(n, " zero                   \
      ", p)\n"                               \
      "y = MatMul(w, v)\n"                   \
      "out y\n"
  becomes(NO_NAN("0.0", "p"), NULL,
          QKV_DUMP
          "y: float32[b,2,s,16] = Attention(q, k, v) {scale=1}\n"
          "out y\n");
  stays(NO_NAN("1.0", "p"));
  stays(NO_NAN("0.0", "a"));
}

static void the_transpose_of_keys_is_undone(void **state) {
  (void)state;
  becomes(
      "in q float32[b,2,s,16]\n"
      "in k float32[b,t,2,16]\n"
      "in v float32[b,2,t,16]\n"
      "kt = Transpose(k) {perm=[0,2,3,1]}\n"
      "a = MatMul(q, kt)\n"
      "p = Softmax(a)\n"
      "y = MatMul(p, v)\n"
      "out y\n",
      NULL,
      "in q: float32[b,2,s,16]\n"
      "in k: float32[b,t,2,16]\n"
      "in v: float32[b,2,t,16]\n"
      "kt.key: float32[b,2,t,16] = Transpose(k) {perm=[0,2,1,3]}\n"
      "y: float32[b,2,s,16] = Attention(q, kt.key, v) {scale=1}\n"
      "out y\n");
}

// As some exporters transpose keys: with batch and heads merged.
static void keys_may_be_transposed_with_merged_heads(void **state) {
  (void)state;
  becomes(QKV
          "d = Shape(k)\n"
          "heads = Slice(d, [0], [2])\n"
          "t = Slice(d, [2], [3])\n"
          "three = Concat([-1], t, [16]) {axis=0}\n"
          "joined = Reshape(k, three)\n"
          "swapped = Transpose(joined) {perm=[0,2,1]}\n"
          "four = Concat(heads, [16], t) {axis=0}\n"
          "kt = Reshape(swapped, four)\n"
          "a = MatMul(q, kt)\n"
          "p = Softmax(a)\n"
          "y = MatMul(p, v)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "y: float32[b,2,s,16] = Attention(q, k, v) {scale=1}\n"
          "out y\n");
  becomes(
      "in q float32[b,2,s,16]\n"
      "in k float32[7,b,32]\n"
      "in v float32[b,2,7,16]\n"
      "joined = Reshape(k, [7,-1,16])\n"
      "swapped = Transpose(joined) {perm=[1,2,0]}\n"
      "kt = Reshape(swapped, [-1,2,16,7])\n"
      "a = MatMul(q, kt)\n"
      "p = Softmax(a)\n"
      "y = MatMul(p, v)\n"
      "out y\n",
      NULL,
      "in q: float32[b,2,s,16]\n"
      "in k: float32[7,b,32]\n"
      "in v: float32[b,2,7,16]\n"
      "joined: float32[7,2*b,16] = Reshape(k, [7,-1,16])\n"
      "kt.Reshape: float32[7,b,2,16] = Reshape(joined, [7,-1,2,16])\n"
      "kt.key: float32[b,2,7,16] = Transpose(kt.Reshape) {perm=[1,2,0,3]}\n"
      "y: float32[b,2,s,16] = Attention(q, kt.key, v) {scale=1}\n"
      "out y\n");
}

// Batch and heads merged, and the number of heads is unknown.
static void attention_over_three_axes_is_found(void **state) {
  (void)state;
  becomes(
      "in q float32[n,s,16]\n"
      "in k float32[t,n,16]\n"
      "in v float32[n,t,16]\n"
      "in m float32[n,1,t]\n"
      "kt = Transpose(k) {perm=[1,2,0]}\n"
      "a = MatMul(q, kt)\n"
      "c = Add(a, m)\n"
      "p = Softmax(c) {axis=2}\n"
      "y = MatMul(p, v)\n"
      "out y\n",
      NULL,
      "in q: float32[n,s,16]\n"
      "in k: float32[t,n,16]\n"
      "in v: float32[n,t,16]\n"
      "in m: float32[n,1,t]\n"
      "kt.key: float32[n,t,16] = Transpose(k) {perm=[1,0,2]}\n"
      "y.Unsqueeze: float32[n,1,1,t] = Unsqueeze(m, [1])\n"
      "y.Unsqueeze: float32[n,1,s,16] = Unsqueeze(q, [1])\n"
      "y.Unsqueeze: float32[n,1,t,16] = Unsqueeze(kt.key, [1])\n"
      "y.Unsqueeze: float32[n,1,t,16] = Unsqueeze(v, [1])\n"
      "y.Attention: float32[n,1,s,16] = Attention(y.Unsqueeze, y.Unsqueeze, "
      "y.Unsqueeze, y.Unsqueeze) {scale=1}\n"
      "y: float32[n,s,16] = Squeeze(y.Attention, [1])\n"
      "out y\n");
  becomes(  // a mask for all of them needs no axis
      "in q float32[n,s,16]\n"
      "in m float32[s,s]\n"
      "qt = Transpose(q) {perm=[0,2,1]}\n"
      "a = MatMul(q, qt)\n"
      "c = Add(a, m)\n"
      "p = Softmax(c)\n"
      "y = MatMul(p, q)\n"
      "out y\n",
      NULL,
      "in q: float32[n,s,16]\n"
      "in m: float32[s,s]\n"
      "y.Unsqueeze: float32[n,1,s,16] = Unsqueeze(q, [1])\n"
      "y.Attention: float32[n,1,s,16] = Attention(y.Unsqueeze, y.Unsqueeze, "
      "y.Unsqueeze, m) {scale=1}\n"
      "y: float32[n,s,16] = Squeeze(y.Attention, [1])\n"
      "out y\n");
}

// They are merged for the matmuls only, as in models of older libraries.
static void merged_heads_are_split(void **state) {
  (void)state;
  becomes(QKV
          "in m bool[b,1,1,t]\n"
          "d = Shape(q)\n"
          "b = Slice(d, [0], [1])\n"
          "s = Slice(d, [2], [3])\n"
          "e = Shape(k)\n"
          "t = Slice(e, [2], [3])\n"
          "qs = Mul(q, 0.5)\n"
          "n = Mul(b, [2])\n"
          "rows = Concat(n, s, [16]) {axis=0}\n"
          "keys = Concat(n, t, [16]) {axis=0}\n"
          "four = Concat(b, [2], s, t) {axis=0}\n"
          "three = Concat(n, s, t) {axis=0}\n"
          "last = Concat(b, [2], s, [16]) {axis=0}\n"
          "qj = Reshape(qs, rows)\n"
          "kj = Reshape(k, keys)\n"
          "vj = Reshape(v, keys)\n"
          "kt = Transpose(kj) {perm=[0,2,1]}\n"
          "a = MatMul(qj, kt)\n"
          "a4 = Reshape(a, four)\n"
          "c = Where(m, a4, -1.0e4)\n"
          "c3 = Reshape(c, three)\n"
          "p = Softmax(c3)\n"
          "z = MatMul(p, vj)\n"
          "y = Reshape(z, last)\n"
          "out y\n",
          NULL,
          QKV_DUMP
          "in m: bool[b,1,1,t]\n"
          "z.Attention: float32[b,2,s,16] = Attention(q, k, v, m) {scale=0.5, "
          "masked=-10000}\n"
          "out y = z.Attention\n");
}

static void heads_stay_in_rows(void **state) {
  (void)state;
  becomes(
      "in x float32[b,s,32]\n"
      "in k float32[b,2,t,16]\n"
      "in z float32[b,t,32]\n"
      "xs = Reshape(x, [0,0,2,16])\n"
      "q = Transpose(xs) {perm=[0,2,1,3]}\n"
      "zs = Reshape(z, [0,0,2,16])\n"
      "v = Transpose(zs) {perm=[0,2,1,3]}\n"
      "a = Attention(q, k, v) {scale=0.5}\n"
      "at = Transpose(a) {perm=[0,2,1,3]}\n"
      "y = Reshape(at, [0,0,32])\n"
      "out y\n",
      NULL,
      "in x: float32[b,s,32]\n"
      "in k: float32[b,2,t,16]\n"
      "in z: float32[b,t,32]\n"
      "y: float32[b,s,32] = Attention(x, k, z) {scale=0.5, q_num_heads=2, "
      "kv_num_heads=2}\n"
      "out y\n");
}

// Each case differs from the one above in one point.
static void heads_with_other_readers_stay_split(void **state) {
  (void)state;
#define HEADS(reshape, perm, after)      \
  "in x float32[b,s,32]\n"               \
  "in k float32[b,2,t,16]\n"             \
  "xs = Reshape(x, " reshape             \
  ")\n"                                  \
  "q = Transpose(xs) {perm=" perm        \
  "}\n"                                  \
  "a = Attention(q, k, k) {scale=0.5}\n" \
  "at = Transpose(a) {perm=[0,2,1,3]}\n" \
  "y = Reshape(at, [0,0,32])\n" after
  stays(HEADS("[0,0,16,2]", "[0,3,1,2]", "out y\n"));
  stays(HEADS("[0,0,2,16]", "[0,2,1,3]", "out y a\n"));
  stays(HEADS("[0,0,2,16]", "[0,2,1,3]", "out y at\n"));
}

#define SCORES                               \
  QKV "kt = Transpose(k) {perm=[0,1,3,2]}\n" \
      "a = MatMul(q, kt)\n"

static void near_misses_of_attention_are_unchanged(void **state) {
  (void)state;
  stays(SCORES  // the probabilities are a result
        "p = Softmax(a)\n"
        "y = MatMul(p, v)\n"
        "out y p\n");
  stays(SCORES  // another axis
        "p = Softmax(a) {axis=2}\n"
        "y = MatMul(p, v)\n"
        "out y\n");
  stays(SCORES  // a negative scale has no square root
        "c = Mul(a, -0.5)\n"
        "p = Softmax(c)\n"
        "y = MatMul(p, v)\n"
        "out y\n");
  stays(SCORES  // the mask may be narrower than the keys
        "in m float32[b,1,s,1]\n"
        "c = Add(a, m)\n"
        "p = Softmax(c)\n"
        "y = MatMul(p, v)\n"
        "out y\n");
  stays(  // heads are broadcast
      "in q float32[b,2,s,16]\n"
      "in k float32[b,1,t,16]\n"
      "in v float32[b,1,t,16]\n"
      "kt = Transpose(k) {perm=[0,1,3,2]}\n"
      "a = MatMul(q, kt)\n"
      "p = Softmax(a)\n"
      "y = MatMul(p, v)\n"
      "out y\n");
  stays(  // a head that is too large for one kernel
      "in q float32[b,s,257]\n"
      "in k float32[b,t,257]\n"
      "kt = Transpose(k) {perm=[0,2,1]}\n"
      "a = MatMul(q, kt)\n"
      "p = Softmax(a)\n"
      "y = MatMul(p, k)\n"
      "out y\n");
  stays(  // batches are broadcast
      "in q float32[b,s,16]\n"
      "in k float32[1,t,16]\n"
      "kt = Transpose(k) {perm=[0,2,1]}\n"
      "a = MatMul(q, kt)\n"
      "p = Softmax(a)\n"
      "y = MatMul(p, k)\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gelu_is_matched_in_any_order),
      cmocka_unit_test(tanh_gelu_is_found),
      cmocka_unit_test(near_misses_of_gelu_are_unchanged),
      cmocka_unit_test(hard_swish_is_found),
      cmocka_unit_test(near_misses_of_hard_swish_are_unchanged),
      cmocka_unit_test(silu_is_found),
      cmocka_unit_test(near_misses_of_silu_are_unchanged),
      cmocka_unit_test(layer_norm_is_found),
      cmocka_unit_test(layer_norm_over_two_axes_without_bias_is_found),
      cmocka_unit_test(near_misses_of_layer_norm_are_unchanged),
      cmocka_unit_test(attention_is_found),
      cmocka_unit_test(attention_with_mask_and_split_scale_is_found),
      cmocka_unit_test(attention_with_a_bool_mask_is_found),
      cmocka_unit_test(attention_with_two_masks_is_found),
      cmocka_unit_test(attention_with_a_cut_causal_mask_is_found),
      cmocka_unit_test(attention_with_nan_replaced_is_found),
      cmocka_unit_test(attention_over_three_axes_is_found),
      cmocka_unit_test(merged_heads_are_split),
      cmocka_unit_test(the_transpose_of_keys_is_undone),
      cmocka_unit_test(keys_may_be_transposed_with_merged_heads),
      cmocka_unit_test(heads_stay_in_rows),
      cmocka_unit_test(heads_with_other_readers_stay_split),
      cmocka_unit_test(near_misses_of_attention_are_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
