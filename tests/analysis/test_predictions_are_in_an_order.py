"""The orders of predictions that answers are made from, as facts."""

from estimates import predicted, predictions

from bricks.analysis.ranking import LATENCY, SAMPLE, predicted_orders
from bricks.studies.inference.prediction import PredictedModel
from bricks.units.interval import Interval


def ms(value: float, share: float = 0.03) -> Interval:
    return Interval.around(value / 1000, share * value / 1000)


def test_settings_are_ordered_at_the_least_batch_and_for_each_sample() -> None:
    cells = [
        predicted("net", ms(latency), threads=threads, batch=batch)
        for threads, batch, latency in ((1, 1, 20), (1, 8, 120), (2, 1, 12), (2, 8, 64))
    ]
    latency, sample = predicted_orders(predictions(*cells))
    assert (latency.model, latency.batch, latency.quantity) == ("net", 1, LATENCY)
    assert latency.order == (2, 0)
    assert (sample.batch, sample.quantity, sample.order) == (None, SAMPLE, (3, 2, 1, 0))
    assert latency.sure > 0.99 and sample.decided_share == 1


def test_models_are_ordered_without_those_that_have_no_estimate() -> None:
    models = [predicted("c1", ms(12)), PredictedModel(model="c2", failure="c2 cannot be read")]
    models += [predicted("c3", ms(10)), predicted("c4", ms(10.1, 0.2))]
    (order,) = predicted_orders(predictions(*models, swept=False))
    assert (order.model, order.order) == (None, (2, 3, 0))
    assert 0.3 < order.sure < 0.7 and 0 < order.decided_share < 1


def test_a_single_prediction_has_no_order() -> None:
    assert predicted_orders(predictions(predicted("net", ms(1)), swept=False)) == []
