"""Models that others wrote, for `glasshouse bench --torch`: torchvision's and transformers'.

Each at the size that its users train, with random weights, and small for a smoke test. PyTorch and
the two libraries are imported when a model is built."""

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import glasshouse as gh

LEARNING_RATE = 1e-3
CLASSES = 1000
PYTORCH_MODES = ("eager", "channels_last", "inductor")
OUR_MODE = "glasshouse"
CAPTURED = "captured"  # ours too, the whole step under gh.optimize
OPTIMIZERS = {
    "SGD": ("SGD", {"lr": LEARNING_RATE}),
    "momentum": ("SGD", {"lr": LEARNING_RATE, "momentum": 0.9}),
    "AdamW": ("AdamW", {"lr": LEARNING_RATE}),
}


@dataclass(frozen=True)
class TorchCase:
    """How to build a model with its batch: (model, inputs by name, labels).

    A model of transformers computes its loss itself, from the labels that it is given."""

    make: Callable[[bool], tuple[Any, ...]]
    convolutions: bool = False
    computes_loss: bool = False


def import_torchvision() -> Any:
    """torchvision; where its compiled part does not load, with its operators defined but empty."""
    import torch

    try:
        import torchvision
    except RuntimeError:  # its module describes operators that its compiled part would define
        define_empty_operators(torch)
        import torchvision
    return torchvision


def prepare_torchvision() -> None:
    """Have libraries that import torchvision find it loaded, where it is installed."""
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()


def import_transformers() -> Any:
    """transformers, which imports torchvision where that is installed."""
    prepare_torchvision()
    import transformers

    return transformers


@functools.cache
def define_empty_operators(torch: Any) -> Any:
    """The library of torchvision's operators; they last as long as it does.

    Its models for classification do not call them.
    """
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.define(f"_{name}_backward(Tensor x) -> Tensor")
    library.define("deform_conv2d(Tensor x) -> Tensor")
    library.define("_deform_conv2d_backward(Tensor x) -> Tensor")
    return library


def image_model(name: str) -> Callable[[bool], tuple[Any, ...]]:
    """A classification model of torchvision on 8 images of 224 × 224."""

    def make(smoke: bool) -> tuple[Any, ...]:
        import torch

        sizes = {"num_classes": 10} if smoke else {"num_classes": CLASSES}
        model = import_torchvision().models.get_model(name, weights=None, **sizes)
        batch = 2 if smoke else 8
        labels = torch.randint(0, sizes["num_classes"], (batch,))
        images = torch.randn(batch, 3, 224, 224)
        return model, {"x": images}, labels

    return make


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """The mean cross-entropy of scores, one row for each label."""
    import torch

    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


@dataclass(frozen=True)
class TextCase:
    """A language model of transformers: class, options of its configuration, batch, length."""

    model: str
    config: str
    options: dict[Any, Any]
    small_options: dict[Any, Any]
    batch: int
    length: int
    decoder: bool = False

    def __call__(self, smoke: bool) -> tuple[Any, ...]:
        import torch

        transformers = import_transformers()
        options = {**self.options, **(self.small_options if smoke else {})}
        config = getattr(transformers, self.config)(**options)
        config.use_cache = False
        model = getattr(transformers, self.model)(config)
        length = 16 if smoke else self.length
        words = torch.randint(3, config.vocab_size, (self.batch, length))
        inputs = {"input_ids": words}
        if self.decoder:
            inputs["decoder_input_ids"] = words
        return model, inputs, words


def whisper(smoke: bool) -> tuple[Any, ...]:
    """Whisper-tiny on one recording of 30 seconds, 64 tokens spoken."""
    import torch

    transformers = import_transformers()
    config = transformers.WhisperConfig(
        d_model=64 if smoke else 384,
        encoder_layers=2 if smoke else 4,
        decoder_layers=2 if smoke else 4,
        encoder_attention_heads=2 if smoke else 6,
        decoder_attention_heads=2 if smoke else 6,
        encoder_ffn_dim=128 if smoke else 1536,
        decoder_ffn_dim=128 if smoke else 1536,
        max_source_positions=100 if smoke else 1500,
    )
    config.use_cache = False
    model = transformers.WhisperForConditionalGeneration(config)
    frames = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    words = torch.randint(3, 50000, (1, 64))
    return model, {"input_features": frames, "decoder_input_ids": words}, words


def lstm_tagger(smoke: bool) -> tuple[Any, ...]:
    """Two layers of LSTM, 512 wide, over 32 sentences of 64 tokens; one of 50 tags for each."""
    import torch

    width, batch, length = (32, 2, 8) if smoke else (512, 32, 64)

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10000, width)
            self.lstm = torch.nn.LSTM(width, width, num_layers=2, batch_first=True)
            self.scores = torch.nn.Linear(width, 50)

        def forward(self, words):
            return self.scores(self.lstm(self.embedding(words))[0])

    words = torch.randint(0, 10000, (batch, length))
    labels = torch.randint(0, 50, (batch, length))
    return Tagger(), {"words": words}, labels


SMALL_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
}
SMALL_LLAMA = {**SMALL_BERT, "num_key_value_heads": 1}
LLAMA = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
SMALL_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100}
SMALL_T5 = {"d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_heads": 2}


def image_case(name: str, convolutions: bool = True) -> TorchCase:
    return TorchCase(image_model(name), convolutions)


def text_case(*fields: Any, **options: Any) -> TorchCase:
    return TorchCase(TextCase(*fields, **options), computes_loss=True)


T5 = ("T5ForConditionalGeneration", "T5Config")
TORCH_CASES = {
    "resnet50": image_case("resnet50"),
    "mobilenet_v3_large": image_case("mobilenet_v3_large"),
    "efficientnet_b0": image_case("efficientnet_b0"),
    "convnext_tiny": image_case("convnext_tiny"),
    "swin_t": image_case("swin_t", convolutions=False),
    "vit_b_16": image_case("vit_b_16", convolutions=False),
    "bert": text_case("BertForMaskedLM", "BertConfig", {}, SMALL_BERT, 4, 128),
    "gpt2": text_case("GPT2LMHeadModel", "GPT2Config", {}, SMALL_GPT2, 2, 256),
    "t5": text_case(*T5, {}, SMALL_T5, 4, 128, decoder=True),
    "llama": text_case("LlamaForCausalLM", "LlamaConfig", LLAMA, SMALL_LLAMA, 1, 512),
    "whisper": TorchCase(whisper, computes_loss=True),
    "lstm": TorchCase(lstm_tagger),
}


class TorchModel:
    """One of these models in one mode, for training steps or for calls without gradients."""

    def __init__(
        self,
        model: str,
        mode: str,
        dtype: str,
        smoke: bool,
        inference: bool = False,
        optimizer: str = "SGD",
    ) -> None:
        import torch

        torch.manual_seed(0)
        self.torch: Any = torch
        self.inference = inference
        self.case: TorchCase = TORCH_CASES[model]
        self.autocast: Any = torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")
        layout = torch.channels_last if mode == "channels_last" else torch.contiguous_format
        self.inputs: Any
        self.labels: Any
        new_model, self.inputs, self.labels = self.case.make(smoke)
        self.model: Any = new_model.train(not inference).to(memory_format=layout)
        if mode == "channels_last":
            self.inputs["x"] = self.inputs["x"].contiguous(memory_format=layout)
        if self.case.computes_loss and not inference:
            self.inputs["labels"] = self.labels
        maker, options = OPTIMIZERS[optimizer]
        self.optimizer: Any = getattr(torch.optim, maker)(self.model.parameters(), **options)
        compiles = mode in ("inductor", OUR_MODE)
        self.call: Any = torch.compile(self.model, backend=mode) if compiles else self.model
        if mode == CAPTURED:
            self.train = gh.optimize(self.train)  # type: ignore[method-assign]  # as users write

    def train(self) -> Any:
        """A training step, or a call without gradients: a number that depends on all of it."""
        if self.inference:
            with self.torch.no_grad(), self.autocast:
                outputs = self.call(**self.inputs)
            return (outputs.logits if self.case.computes_loss else outputs).flatten()[0]
        self.optimizer.zero_grad()
        with self.autocast:
            outputs = self.call(**self.inputs)
            has_loss = self.case.computes_loss
            loss = outputs.loss if has_loss else cross_entropy(outputs, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def compute_weights(self) -> None:
        """All weights are there already."""
