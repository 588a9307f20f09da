"""The applications by name. Each is imported when it is used."""

import importlib

from glasshouse.apps.app import App
from glasshouse.base.errors import check_known

APPS = {
    "imgclass": "ImageClassification",
    "textclass": "TextClassification",
    "detect": "Detection",
    "lm": "TextGeneration",
    "segment": "Segmentation",
    "asr": "SpeechRecognition",
    "embed": "TextEmbedding",
    "translate": "Translation",
}


def find_app(name: str) -> App:
    """The application of this name.

    Raises: OptionError for another name.
    Example:
        >>> find_app("imgclass").summary
        'Classify images: handwritten digits, or a folder of images for each class'
    """
    check_known("find_app", f"one of {', '.join(APPS)}", name, APPS)
    return getattr(importlib.import_module(f"glasshouse.apps.{name}"), APPS[name])()
