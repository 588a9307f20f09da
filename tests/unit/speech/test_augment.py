"""Noise has its level, rooms are convolutions; bad calls."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech

rng = np.random.default_rng(0)
WAVE = rng.normal(size=(3, 5000)) * np.array([[0.1], [1.0], [5.0]])


@pytest.mark.parametrize("noise", [None, rng.normal(size=700), rng.normal(size=9000)])
def test_noise_is_so_many_decibels_below(noise):
    gh.random.seed(0)
    levels = np.array([0.0, 10.0, 20.0])
    difference = speech.add_noise(WAVE, levels, noise).numpy() - WAVE
    ratio = (WAVE**2).mean(1) / (difference**2).mean(1)
    np.testing.assert_allclose(10 * np.log10(ratio), levels, atol=1e-6)
    again = speech.add_noise(WAVE, levels, noise).numpy() - WAVE
    assert not np.array_equal(difference, again)


def test_a_room_is_a_convolution_from_its_peak():
    response = rng.normal(size=200)
    response[30] = 9.0
    got = speech.reverberate(WAVE, response).numpy()
    scaled = response / np.sqrt((response**2).sum())
    for row, x in zip(got, WAVE):
        np.testing.assert_allclose(row, np.convolve(x, scaled)[30:5030], atol=1e-9)


def test_a_made_up_room_falls_by_60_decibels():
    response = speech.room_response(8000, 0.5, direct=0.3)
    assert (response**2).sum() == pytest.approx(1.0)
    assert response[0] ** 2 == pytest.approx(0.3)
    early, late = (response[1:401] ** 2).mean(), (response[-400:] ** 2).mean()
    assert 10 * np.log10(early / late) == pytest.approx(54, abs=2)


BAD = [
    (lambda: speech.add_noise(WAVE, 0.0, np.zeros((2, 9))), gh.ShapeError, r"\(2, 9\)"),
    (lambda: speech.add_noise(WAVE, 0.0, np.zeros(0)), gh.ShapeError, r"\(0,\)"),
    (lambda: speech.reverberate(WAVE, np.zeros((2, 9))), gh.ShapeError, r"\(2, 9\)"),
    (lambda: speech.room_response(8000, 0.0), gh.OptionError, "reverberation_s"),
    (lambda: speech.room_response(8000, direct=1.5), gh.OptionError, "direct"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()
