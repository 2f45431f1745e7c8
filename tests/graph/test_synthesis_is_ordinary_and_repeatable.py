import ml_dtypes
import numpy as np
import pytest
from refusals import refused

from bricks.errors import ModelError
from bricks.graph.synthesis import Pool, Range, numpy_dtype
from bricks.graph.types import ELEMENT_BITS, TensorType

SHAPES = [(), (5,), (3, 7), (4, 3, 3, 3), (0, 4)]
MADE = sorted(name for name in ELEMENT_BITS if "COMPLEX" not in name)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", MADE)
def test_every_element_type_can_be_made(pool, dtype, shape):
    type = TensorType(dtype, shape)
    for array in (pool.weight("a", type), pool.input("a", type)):
        assert array.dtype == numpy_dtype(dtype)
        assert array.nbytes == type.size_bytes
        assert array.flags.c_contiguous
        assert array.flags.writeable
        if ELEMENT_BITS[dtype] >= 8:
            assert array.shape == shape


@pytest.mark.parametrize("dtype", ["STRING", "COMPLEX64", "COMPLEX128"])
def test_types_that_nothing_can_be_drawn_for_are_named(pool, dtype):
    with refused(ModelError, "'text'", dtype):
        pool.weight("text", TensorType(dtype, (3,)))


def test_seed_and_name_give_the_array():
    type, index = TensorType("FLOAT", (300, 70)), TensorType("INT64", (300,))
    one, same, other = Pool(1), Pool(1), Pool(2)
    for draw in ("weight", "input"):
        first = getattr(one, draw)("w", type)
        np.testing.assert_array_equal(first, getattr(same, draw)("w", type))
        assert not np.array_equal(first, getattr(one, draw)("v", type))
        assert not np.array_equal(first, getattr(other, draw)("w", type))
    drawn = one.input("i", index, Range(0, 1000, ""))
    np.testing.assert_array_equal(drawn, same.input("i", index, Range(0, 1000, "")))
    assert not np.array_equal(drawn, other.input("i", index, Range(0, 1000, "")))


def test_weights_keep_activations_in_scale(pool):
    dense = pool.weight("w", TensorType("FLOAT", (512, 256)))
    assert np.abs(dense).max() == pytest.approx((6 / 512) ** 0.5, rel=0.01)
    conv = pool.weight("w", TensorType("FLOAT", (64, 32, 3, 3)))
    assert np.abs(conv).max() == pytest.approx((6 / 288) ** 0.5, rel=0.01)
    assert abs(conv.mean()) < 0.01
    values = pool.input("x", TensorType("FLOAT", (512, 64)))
    assert np.abs(values).max() <= 1
    assert values.std() > 0.4


@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"])
def test_vectors_are_positive_for_they_may_be_variances(pool, dtype):
    array = as_floats(pool.weight("variance", TensorType(dtype, (5000,))), dtype)
    assert array.min() >= 0.25
    assert array.max() < 0.75


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("shape", [(4096, 4096), (8, 25088), (2_000_000,)], ids=str)
def test_no_number_is_denormal_or_infinite(pool, dtype, shape):
    array = as_floats(pool.weight("w", TensorType(dtype, shape)), dtype)
    least = {
        "FLOAT": 2.0**-126, "FLOAT16": 2.0**-14, "BFLOAT16": 2.0**-126,
        "FLOAT8E4M3FN": 2.0**-6, "FLOAT8E5M2": 2.0**-14,
    }[dtype]  # fmt: skip
    assert np.abs(array).min() >= least
    assert np.isfinite(array).all()


def as_floats(array: np.ndarray, dtype: str) -> np.ndarray:
    views = {
        "BFLOAT16": ml_dtypes.bfloat16,
        "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
        "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    }
    return (array.view(views[dtype]) if dtype in views else array).astype(np.float32)


@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "INT16", "INT32", "INT64", "UINT64"])
@pytest.mark.parametrize(("low", "high"), [(0, 2), (1, 2), (3, 50), (7, 8)])
def test_integers_lie_in_their_range(pool, dtype, low, high):
    array = pool.input("i", TensorType(dtype, (4000,)), Range(low, high, ""))
    assert set(np.unique(array)) == set(range(low, high))


def test_large_ranges_are_covered_and_never_left(pool):
    array = pool.input("i", TensorType("INT64", (100_000,)), Range(-5, 30_522, ""))
    assert array.min() < 300
    assert array.max() > 30_200
    assert array.min() >= -5
    assert array.max() < 30_522
    for dtype in ("INT64", "UINT64", "INT32", "UINT32"):
        widest = Range(-(1 << 63), 1 << 64, "")
        assert pool.input("i", TensorType(dtype, (1000,)), widest).std() > 1000


def test_a_range_without_values_is_refused(pool):
    with refused(ModelError, "i", 300):
        pool.input("i", TensorType("UINT8", (4,)), Range(300, 400, ""))


def test_integers_and_booleans_without_a_range(pool):
    assert pool.weight("m", TensorType("BOOL", (100,))).all()
    assert set(np.unique(pool.weight("i", TensorType("INT64", (1000,))))) == {0, 1}
    assert len(np.unique(pool.weight("q", TensorType("INT8", (100_000,))))) == 256


def test_packed_integers_lie_in_their_range_too(pool):
    packed = pool.input("q", TensorType("INT4", (1001,)), Range(-2, 3, ""))
    nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[:1001].astype(int)
    signed = np.where(nibbles > 7, nibbles - 16, nibbles)
    assert set(np.unique(signed)) == set(range(-2, 3))
    assert packed[-1] >> 4 == 0
