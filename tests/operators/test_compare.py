"""Differences that compare.py and quirks.py must not excuse."""

import numpy as np
from case import Case, Failure, Results
from compare import REJECTED, disagreement

import limber


def results(*arrays, names="yz"):
    return Results(names[:len(arrays)], [np.asarray(a) for a in arrays])


def case(op="Add", inputs=(), opset=18, **attrs):
    return Case(op, opset, [None if x is None else np.asarray(x)
                           for x in inputs], attrs)


F32 = np.float32
ONES = np.ones(3, F32)


def test_two_rejections_are_not_an_agreement():
    theirs = Failure(RuntimeError("INVALID_ARGUMENT"))
    for error in (limber.InvalidModel, limber.InvalidArgument,
                  limber.Unsupported):
        assert disagreement(case(), Failure(error("x")), theirs) == REJECTED


def test_an_internal_error_is_not_a_rejection():
    theirs = Failure(RuntimeError("INVALID_ARGUMENT"))
    for error in (limber.InternalError, limber.DeviceError, limber.OutOfMemory,
                  RuntimeError, TypeError, SystemError):
        assert error.__name__ in disagreement(case(), Failure(error("x")),
                                              theirs)


def test_number_and_names_of_outputs_are_compared():
    assert disagreement(case(), results(ONES), results(ONES)) is None
    assert disagreement(case(), results(ONES), results(ONES, ONES))
    assert disagreement(case(), results(ONES, ONES), results(ONES))
    assert disagreement(case(), results(ONES), results(ONES, names="z"))


def test_dtypes_and_shapes_are_compared():
    assert disagreement(case(), results(ONES), results(ONES.astype(float)))
    assert disagreement(case(), results(ONES), results(ONES[None]))


def test_a_nan_excuses_its_own_element_only():
    c = case("ReduceMax", [[[np.nan, 1], [2, 3]]], axes=[0])
    want = results(F32([1, 3]))
    assert disagreement(c, results(F32([np.nan, 3])), want) is None
    assert disagreement(c, results(F32([np.nan, 2])), want)


def test_other_values_of_resized_integers_are_compared():
    c = case("Resize", [np.zeros((1, 1, 2), np.int8), None,
                        F32([1, 1, 2])], mode="linear")
    want = results(np.int8([[[1, 2, 3, 4]]]))
    assert disagreement(c, results(np.int8([[[2, 2, 3, 4]]])), want) is None
    assert disagreement(c, results(np.int8([[[3, 2, 3, 4]]])), want)


def test_an_empty_matmul_is_compared_with_numpy():
    c = case("MatMul", [np.zeros((2, 0), F32), np.zeros((0, 2), F32)])
    theirs = Failure(RuntimeError("FAIL"))
    zeros = np.zeros((2, 2), F32)
    assert disagreement(c, results(zeros), theirs) is None
    assert disagreement(c, results(zeros + 1), theirs)
    assert disagreement(c, results(zeros[:1]), theirs)


def test_a_mask_excuses_no_data():
    c = case("Dropout", [ONES], opset=10)
    no, yes = np.zeros(3, bool), np.ones(3, bool)
    assert disagreement(c, results(ONES, yes), results(ONES, no)) is None
    assert disagreement(c, results(ONES + 1, yes), results(ONES, no))
    assert disagreement(c, results(ONES, no), results(ONES, yes))


def test_a_rejection_is_excused_by_its_message():
    c = case("ArgMax", [np.zeros((2, 0), F32)], axis=1)
    want = results(np.zeros((2, 1), np.int64))
    said = "dim 1 of [2,0] is empty, so there is no index to return"
    for error, excused in ((limber.InvalidArgument(said), True),
                           (limber.InvalidArgument("no"), False),
                           (limber.InternalError(said), False)):
        text = disagreement(c, Failure(error), want)
        assert (text is None) == excused
