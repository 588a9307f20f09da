"""Models of Hugging Face's transformers, made from a configuration on the meta device."""

from collections.abc import Mapping
from typing import Any

from glasshouse.base.errors import BackendError, OptionError, optional, type_name

# Heads for a configuration whose `architectures` name none, in order.
HEADS = (
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
)
INPUTS = ("input_ids", "pixel_values")
WHERE = "fits"


def build(config: Any, batch: Any) -> tuple[Any, ...]:
    """(model, inputs) for a configuration and a batch: a number of examples, or (examples, tokens);
    other inputs are returned as they are.

    Raises: BackendError where torch or transformers is missing, OptionError for a configuration
        without a model that has a loss
    """
    torch = optional(WHERE, "PyTorch, for configurations of Hugging Face's", "torch", "torch")
    transformers = load_transformers()
    config = as_config(transformers, config)
    with torch.device("meta"):
        model = class_of(transformers, config)(config)
    model.train()
    return model, inputs_of(model, config, batch)


def load_transformers() -> Any:
    """The library.

    Raises: BackendError where it is missing
    """
    try:
        import transformers
    except ImportError as error:
        what = "transformers, for configurations of Hugging Face's"
        fix = "Install it: pip install transformers. Or pass the model itself."
        raise BackendError(WHERE, what, error, fix) from error
    return transformers


def as_config(transformers: Any, config: Any) -> Any:
    """The configuration as an object.

    Raises: OptionError for a type of model that transformers does not know
    """
    if not isinstance(config, Mapping):
        return config
    options = dict(config)
    try:
        return transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    except ValueError as error:
        expected = "a model_type that transformers knows"
        raise OptionError(WHERE, expected, repr(config["model_type"]), f"{error}") from error


def class_of(transformers: Any, config: Any) -> Any:
    """The function that makes the model: the first of `architectures`, else a fitting head.

    Raises: OptionError
    """
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)._from_config
    for name in HEADS:
        auto = getattr(transformers, name)
        if type(config) in auto._model_mapping and not is_other(name, config):
            return auto.from_config
    expected = "a configuration of a language model or of an image classifier"
    fix = "Set its architectures, or pass the model and its inputs."
    raise OptionError(WHERE, expected, type_name(config), fix)


def is_other(name: str, config: Any) -> bool:
    """Whether a head is for models of another kind than the configuration's."""
    if name == "AutoModelForSeq2SeqLM":
        return not config.is_encoder_decoder
    return name == "AutoModelForMaskedLM" and getattr(config, "is_decoder", False)


def inputs_of(model: Any, config: Any, batch: Any) -> Any:
    """The model's inputs with labels, so that the model returns its loss.

    Raises: OptionError for a model whose input is neither tokens nor images
    """
    is_pair = isinstance(batch, tuple) and all(isinstance(n, int) for n in batch)
    if not isinstance(batch, int) and not (is_pair and len(batch) == 2):
        return batch
    examples, tokens = batch if is_pair else (batch, None)
    main = model.main_input_name
    if main not in INPUTS:
        fix = "Pass the model and its inputs."
        raise OptionError(WHERE, f"a model of {' or '.join(INPUTS)}", main, fix)
    if main == "pixel_values":
        size = config.image_size
        sides = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
        images = (examples, getattr(config, "num_channels", 3), *sides), "float32"
        return [{main: images, "labels": ((examples,), "int64")}]
    length = tokens or getattr(config, "max_position_embeddings", None)
    if length is None:
        fix = "Pass (examples, tokens) as the batch."
        raise OptionError(WHERE, "a number of tokens", f"a batch of {examples}", fix)
    ids = (examples, length), "int64"
    return [{main: ids, "labels": ids}]
