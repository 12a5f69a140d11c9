"""Properties of the locations of a spectrum over random shapes and counts."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, follow
from loca_theory.adapters.indices import continuous, rounded

reproducible = settings(max_examples=20, deadline=None, derandomize=True, database=None)
sides = st.integers(1, 12)


@reproducible
@given(sides, sides, st.data())
def test_the_end_of_a_search_keeps_the_increment_and_separates_the_components(p, q, data):
    location = st.tuples(st.integers(0, p - 1), st.integers(0, q - 1))
    indices = torch.tensor(data.draw(st.lists(location, min_size=1, max_size=p * q)))
    spectrum = CosineSpectrum((p, q), len(indices), schedule=AlternatingSchedule()).double()
    follow(spectrum, torch.optim.SGD(spectrum.parameters(), 0.1))
    spectrum.set_indices(indices)
    with torch.no_grad():
        spectrum.coefficients.normal_(generator=torch.Generator().manual_seed(len(indices)))
    before = spectrum.increment()
    spectrum.finish_search()
    assert torch.unique(spectrum.indices, dim=0).shape == indices.shape
    assert bool(((spectrum.indices >= 0) & (spectrum.indices < torch.tensor((p, q)))).all())
    # A few hundred float64 operations.
    torch.testing.assert_close(spectrum.increment(), before, rtol=1e-10, atol=1e-10)


@reproducible
@given(sides, sides, st.data())
def test_indices_of_a_new_layer_are_distinct_and_continuous_locations_round_to_them(p, q, data):
    count = data.draw(st.integers(1, p * q))
    indices = CosineSpectrum((p, q), count, seed=data.draw(st.integers(0, 2**32))).indices
    assert torch.unique(indices, dim=0).shape == (count, 2)
    assert torch.equal(rounded(continuous(indices, (p, q)), (p, q)), indices)
