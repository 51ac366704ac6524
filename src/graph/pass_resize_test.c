// graph/pass_resize_test.c -- splits a Resize of more axes than a kernel
// supports. The partition tests, which compare with the reference, check the
// results.
#include "graph/text_test.h"

static void a_cubic_resize_is_split_by_axis(void **state) {
  (void)state;
  becomes(
      "in x float32[b,h,w,8]\n"
      "const s float32[4] 1 2 3 1\n"
      "y = Resize(x,_,s) {mode=\"cubic\"}\n"
      "out y\n",
      NULL,
      "in x: float32[b,h,w,8]\n"
      "y.Resize: float32[b,2*h,w,8] = Resize(x, _, [2]) {mode=\"cubic\", "
      "axes=[1]}\n"
      "y.Resize: float32[b,2*h,3*w,8] = Resize(y.Resize, _, [1,3,1]) "
      "{mode=\"cubic\", axes=[0,2,3]}\n"
      "out y = y.Resize\n");
}

static void sizes_are_split_too(void **state) {
  (void)state;
  becomes(
      "in x float32[b,4,h,w,8]\n"
      "y = Resize(x,_,_,[7,5,6]) {mode=\"linear\", axes=[1,3,2]}\n"
      "out y\n",
      NULL,
      "in x: float32[b,4,h,w,8]\n"
      "y.Resize: float32[b,7,h,w,8] = Resize(x, _, _, [7]) "
      "{mode=\"linear\", axes=[1]}\n"
      "y.Resize: float32[b,7,6,5,8] = Resize(y.Resize, _, _, [5,6]) "
      "{mode=\"linear\", axes=[3,2]}\n"
      "out y = y.Resize\n");
}

static void a_resize_that_kernels_support_is_unchanged(void **state) {
  (void)state;
  stays(
      "in x float32[b,h,w,8]\n"
      "const s float32[4] 1 2 3 1\n"
      "y = Resize(x,_,s) {mode=\"linear\"}\n"
      "out y\n");
  stays(
      "in x float32[b,h,w,8]\n"
      "const s float32[4] 1 1 3 1\n"
      "y = Resize(x,_,s) {mode=\"cubic\"}\n"
      "out y\n");
  stays(  // one scale for all axes
      "in x float32[b,h,w,8]\n"
      "y = Resize(x,_,_,[5,6]) {mode=\"cubic\", axes=[1,2], "
      "keep_aspect_ratio_policy=\"not_larger\"}\n"
      "out y\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cubic_resize_is_split_by_axis),
      cmocka_unit_test(sizes_are_split_too),
      cmocka_unit_test(a_resize_that_kernels_support_is_unchanged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
