from tides import Constituent, Harbour, level


def test_mean_without_constituents():
    assert level(Harbour("flat", 2.5, ()), 17) == 2.5


def test_one_constituent_peaks_at_its_phase():
    h = Harbour("one", 0.0, (Constituent("M2", 1.0, 12.0, 0.0),))
    assert level(h, 0) == 1.0
    assert round(level(h, 6), 9) == -1.0
