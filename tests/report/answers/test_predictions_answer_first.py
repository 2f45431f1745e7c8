"""The first line of ``predict``: a latency, the fastest model, or the best setting."""

from dataclasses import replace

from estimates import predicted, predictions
from hypothesis import given
from hypothesis import strategies as st

from bricks.report.agreement import agreement_remarks, unknown_agreements
from bricks.report.latency_answers import prediction_answer
from bricks.report.prediction import best_cells
from bricks.session.agreement import Agreement, Verdict
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.units.interval import Interval


def ms(value: float, share: float = 0.03) -> Interval:
    return Interval.around(value / 1000, share * value / 1000)


def test_one_model_is_told_with_its_place_and_source() -> None:
    one = predictions(predicted("net", ms(38.2), runtime="onnxruntime", threads=2), swept=False)
    assert prediction_answer(one) == "net takes 38.2 ms (±3 %) here with 2 threads: 100 % measured."
    batch = predictions(predicted("net", ms(80), runtime="openvino", batch=8), swept=False)
    assert prediction_answer(batch) == (
        "net takes 80.0 ms (±3 %) at batch 8, 10.0 ms a sample, here with openvino and 1 thread:"
        " 100 % measured."
    )


def test_a_clear_winner_is_named_with_the_distance_of_the_next() -> None:
    cells = [
        predicted("net", ms(22.0), runtime="openvino"),
        predicted("net", ms(28.6), runtime="onnxruntime"),
    ]
    assert prediction_answer(predictions(*cells)) == (
        "net is fastest with openvino here with 1 thread: 22.0 ms (±3 %), with onnxruntime it takes"
        " 1.3 times as long (sure: >99 %)."
    )


def test_a_runtime_that_computes_something_else_is_no_answer() -> None:
    cells = [
        predicted("net", ms(22.0), runtime="openvino"),
        predicted("net", ms(28.6), runtime="onnxruntime"),
    ]
    swept = predictions(*cells)

    def among(verdict: Verdict) -> ModelPredictions:
        agreement = Agreement("net", "openvino", "onnxruntime", verdict)
        return replace(swept, agreements=(agreement,))

    differing = among(Verdict(False, "y", 0.84, 0.1, errs=["openvino"]))
    assert prediction_answer(differing).endswith(
        "1.3 times as long (sure: >99 %); but openvino computes something else."
    )
    assert agreement_remarks(differing.agreements, {"net": "my net.onnx"}) == [
        "net: openvino errs by a reference in double precision, onnxruntime does not, so latencies"
        " do not compare: of output 'y', it differs by 84 % of its greatest value (10 % would be"
        " rounding). More: bricks validate models 'my net.onnx' --runtime openvino --runtime"
        " onnxruntime"
    ]
    unjudged = among(
        Verdict(False, "y", None, 0.001, "its shape is (2,), and the reference's (1,)")
    )
    assert prediction_answer(unjudged).endswith("; but they compute different results.")
    assert agreement_remarks(unjudged.agreements, {}) == [
        "net: openvino and onnxruntime compute different results, and no reference says who errs,"
        " so latencies do not compare: of output 'y', with onnxruntime, its shape is (2,), and"
        " openvino's (1,)."
    ]
    unknown = among(Verdict(None, reason="not compared yet"))
    for same in (among(Verdict(True, "y", 1e-7, 1e-3)), unknown):
        assert prediction_answer(same) == prediction_answer(swept)
        assert agreement_remarks(same.agreements, {}) == []
    assert unknown_agreements(unknown.agreements) == [
        "net: whether openvino and onnxruntime compute the same is not known: not compared yet."
    ]


def test_where_intervals_overlap_nobody_wins() -> None:
    cells = [predicted("net", ms(20, 0.2), threads=2), predicted("net", ms(21, 0.2), threads=1)]
    text = prediction_answer(predictions(*cells))
    assert text.startswith("It is undecided how net is fastest here with fake: with 2 threads, 20")
    assert "is fastest with" not in text and "or with 1 thread, 21.0 ms" in text


def test_batches_are_compared_by_sample() -> None:
    cells = [
        predicted("net", ms(latency), threads=threads, batch=batch)
        for threads, batch, latency in ((1, 1, 20), (1, 8, 120), (2, 1, 12), (2, 8, 64))
    ]
    assert prediction_answer(predictions(*cells)) == (
        "net is fastest with 2 threads here with fake: 12.0 ms (±3 %) at batch 1, with 1 thread it"
        " takes 1.7 times as long (sure: >99 %); a sample takes least with 2 threads at batch 8:"
        " 8.00 ms (sure: >99 %)."
    )


def test_shapes_are_other_work_of_which_none_is_the_best() -> None:
    cells = [
        predicted("ocr", ms(latency), runtime="onnxruntime", shapes=(f"x=?x3x48x{width}",))
        for width, latency in ((320, 4), (640, 9), (960, 13), (1280, 19))
    ]
    assert prediction_answer(predictions(*cells)) == (
        "ocr takes 4.00 ms (±3 %) at ?x3x48x320, 9.00 ms (±3 %) at ?x3x48x640 and 13.0 ms (±3 %) at"
        " ?x3x48x960 here with 1 thread; 1 more shape below."
    )
    cells = [
        predicted("ocr", ms(latency), threads=threads, shapes=(f"x=?x3x48x{width}",))
        for width, threads, latency in ((320, 1, 4), (320, 2, 2), (640, 1, 9), (640, 2, 18))
    ]
    assert prediction_answer(predictions(*cells)) == (
        "At ?x3x48x320, ocr is fastest with 2 threads here with fake: 2.00 ms (±3 %), with 1 thread"
        " it takes 2.0 times as long (sure: >99 %); at ?x3x48x640, ocr is fastest with 1 thread"
        " here with fake: 9.00 ms (±3 %), with 2 threads it takes 2.0 times as long (sure: >99 %)."
    )


def test_many_models_are_ranked_with_how_sure_that_is() -> None:
    models = [predicted(f"c{n}", ms(10 + n, 0.01)) for n in range(12)]
    lacking = PredictedModel(model="c12", failure="c12 cannot be read")
    text = prediction_answer(predictions(*models, lacking, swept=False))
    assert text == (
        "c0 is the fastest of 12 models here with fake and 1 thread: 10.0 ms (±1 %), then c1 (11.0"
        " ms) and c2 (12.0 ms) (sure: >99 %); the order of 100 % of all pairs is decided; 1 model"
        " has no estimate."
    )
    unsure = [predicted(f"c{n}", ms(10 + n, 0.3)) for n in range(12)]
    text = prediction_answer(predictions(*unsure, swept=False))
    assert text.startswith("c0 (10.0 ms, ±30 %), c1 (11.0 ms) and c2 (12.0 ms) are the fastest")
    assert "c0 is the first with a probability of" in text


def test_several_models_say_which_setting_is_best_for_how_many() -> None:
    cells = [
        predicted(model, ms(latency), threads=threads)
        for model, threads, latency in (("a", 1, 4), ("a", 2, 2), ("b", 1, 6), ("b", 2, 9))
    ]
    assert prediction_answer(predictions(*cells)) == (
        "a with 2 threads is the fastest of 2 models here with fake: 2.00 ms (±3 %); 1 of 2 is"
        " fastest with 2 threads and 1 of 2 is fastest with 1 thread."
    )


def test_several_models_in_settings_that_overlap_have_no_winner() -> None:
    cells = [
        predicted(model, ms(latency, 0.3), threads=threads)
        for model, latency in (("a", 10), ("b", 11))
        for threads in (1, 2)
    ]
    assert prediction_answer(predictions(*cells)) == (
        "a (10.0 ms) and b (11.0 ms) are the fastest of 2 models here with fake; their order is"
        " undecided; the best setting of 2 of 2 is undecided."
    )


def test_without_an_estimate_the_reason_is_the_answer() -> None:
    lacking = PredictedModel(model="net", failure="net cannot be read")
    assert prediction_answer(predictions(lacking, swept=False)) == (
        "There is no estimate: net cannot be read"
    )


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.1, 100), st.sampled_from([1, 4, 16])),
        min_size=1,
    )
)
def test_the_marked_best_is_the_least_of_its_cells(rows: list[tuple[str, float, int]]) -> None:
    cells = [predicted(model, ms(latency), batch=batch) for model, latency, batch in rows]
    best = best_cells(predictions(*cells))
    assert [of.model for of in best] == list(dict.fromkeys(model for model, *_ in rows))
    for of in best:
        assert of.sample_s.value == min(c.sample_s.value for c in cells if c.model == of.model)
