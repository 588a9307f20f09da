"""Layers of nn, and small models of vision, speech and text, as `gh.onnx.export` gets them.

    PYTHONPATH=src python tools/judges/onnx_export_cases.py [NAME …]    # needs onnx and onnxruntime

Each is exported with sizes that vary, checked by onnx, and run by onnxruntime and by our importer
at the examples' sizes and at others. tests/unit/onnx/test_export_cases.py runs them, and
tools/documents/make_onnx_export_table.py makes a page of them."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import Explained


class Case(NamedTuple):
    """A module, made on demand; arguments; axes that vary, by argument; arguments to try too."""

    name: str
    make: Callable[[], Any]
    inputs: tuple[Any, ...]
    axes: dict[str, dict[int, str]] = {}
    others: tuple[Any, ...] = ()


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def tokens(*shape: int, most: int = 50) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(1, most, shape)


def module(name: str, *args: Any, **named: Any) -> Callable[[], Any]:
    return lambda: getattr(nn, name)(*args, **named)


def batched(make: Callable[[], Any], name: str, x: np.ndarray, argument: str = "input") -> Case:
    """A case whose first axis varies."""
    other = np.concatenate([x, x[::-1] * 0.5 if x.dtype.kind == "f" else x[::-1], x[:1]])
    return Case(name, make, (x,), {argument: {0: "n"}}, (other,))


def plain_layers() -> Iterator[Case]:
    """Layers of one input (N, features) or (N, C, L)."""
    for name in """CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU
        LogSigmoid Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh
        Tanhshrink Dropout AlphaDropout Flatten""".split():
        yield batched(module(name), name, normal(3, 4, 6))
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        yield batched(module(name, dim=-1), name, normal(3, 4, 6))
    yield batched(module("Softmax2d"), "Softmax2d", normal(2, 3, 4, 4))
    yield batched(module("GELU", approximate="tanh"), "GELU, tanh", normal(3, 4))
    yield batched(module("Threshold", 0.1, 2.0), "Threshold", normal(3, 4))
    yield batched(module("Linear", 6, 5), "Linear", normal(3, 6))
    yield batched(module("Linear", 6, 5, bias=False), "Linear of 3 axes", normal(3, 4, 6))
    yield batched(module("Embedding", 50, 4), "Embedding", tokens(2, 7))
    yield batched(module("LayerNorm", 6), "LayerNorm", normal(3, 4, 6))
    yield batched(module("RMSNorm", 6), "RMSNorm", normal(3, 4, 6))
    yield batched(module("GroupNorm", 2, 4), "GroupNorm", normal(3, 4, 6))
    yield batched(module("LocalResponseNorm", 2), "LocalResponseNorm", normal(3, 4, 6))
    yield batched(module("Unflatten", 1, (2, 2)), "Unflatten", normal(3, 4))
    yield batched(module("ChannelShuffle", 2), "ChannelShuffle", normal(2, 4, 4, 4))
    yield batched(module("PixelShuffle", 2), "PixelShuffle", normal(2, 4, 3, 3))
    yield batched(module("PixelUnshuffle", 2), "PixelUnshuffle", normal(2, 4, 4, 4))
    yield batched(module("Unfold", 2), "Unfold", normal(2, 3, 5, 5))
    yield batched(module("Fold", (4, 4), 2, stride=2), "Fold", normal(2, 8, 4))
    yield batched(module("Upsample", scale_factor=2), "Upsample, nearest", normal(2, 3, 4, 5))
    yield batched(
        module("Upsample", size=(7, 9), mode="bilinear"), "Upsample, bilinear", normal(2, 3, 4, 5)
    )
    yield batched(
        module("Upsample", scale_factor=2, mode="bicubic"), "Upsample, bicubic", normal(2, 3, 4, 5)
    )


def layers_by_axes() -> Iterator[Case]:
    """Layers of 1, 2 and 3 spatial axes."""
    for n in (1, 2, 3):
        x = normal(2, 4, *(6, 7, 5)[:n])
        options = {"padding": 1, "groups": 2, "stride": 2}
        conv = module(f"Conv{n}d", 4, 6, 3, **options)
        yield batched(conv, f"Conv{n}d", x)
        turned = module(f"ConvTranspose{n}d", 4, 6, 3, output_padding=1, **options)
        yield batched(turned, f"ConvTranspose{n}d", x)
        yield batched(module(f"BatchNorm{n}d", 4), f"BatchNorm{n}d", x)
        yield batched(module(f"InstanceNorm{n}d", 4, affine=True), f"InstanceNorm{n}d", x)
        yield batched(module(f"MaxPool{n}d", 3, 2, 1), f"MaxPool{n}d", x)
        yield batched(module(f"MaxPool{n}d", 3, 2, ceil_mode=True), f"MaxPool{n}d, ceil_mode", x)
        yield batched(module(f"AvgPool{n}d", 3, 2, 1), f"AvgPool{n}d", x)
        yield batched(module(f"AdaptiveAvgPool{n}d", 3), f"AdaptiveAvgPool{n}d", x)
        yield batched(module(f"AdaptiveMaxPool{n}d", 3), f"AdaptiveMaxPool{n}d", x)
        for kind in ("Constant", "Reflection", "Replication", "Zero", "Circular"):
            value = (0.5,) if kind == "Constant" else ()
            yield batched(module(f"{kind}Pad{n}d", 1, *value), f"{kind}Pad{n}d", x)
        if n < 3:
            yield batched(module(f"LPPool{n}d", 2, 2), f"LPPool{n}d", x)


def layers_of_sequences() -> Iterator[Case]:
    """Recurrent layers and attention, over a batch and a length that vary."""
    axes = {"input": {0: "n", 1: "t"}}
    for name in ("RNN", "GRU", "LSTM"):
        make = module(name, 6, 5, num_layers=2, bidirectional=True, batch_first=True)
        yield Case(name, make, (normal(2, 5, 6),), axes, (normal(3, 8, 6),))
    for name in ("RNNCell", "GRUCell", "LSTMCell"):
        yield batched(module(name, 6, 5), name, normal(3, 6))
    three = {name: {0: "n", 1: "t"} for name in ("query", "key", "value")}
    inputs, others = (normal(2, 5, 8),) * 3, (normal(3, 9, 8),) * 3
    make = module("MultiheadAttention", 8, 2, batch_first=True)
    yield Case("MultiheadAttention", make, inputs, three, others)
    make = module("TransformerEncoderLayer", 8, 2, 16, batch_first=True)
    axes = {"src": {0: "n", 1: "t"}}
    yield Case("TransformerEncoderLayer", make, (normal(2, 5, 8),), axes, (normal(3, 9, 8),))
    both = {"tgt": {0: "n", 1: "t"}, "memory": {0: "n", 1: "s"}}
    make = module("TransformerDecoderLayer", 8, 2, 16, batch_first=True)
    pair, other = (normal(2, 5, 8), normal(2, 4, 8)), (normal(3, 7, 8), normal(3, 9, 8))
    yield Case("TransformerDecoderLayer", make, pair, both, other)
    both = {"src": {0: "n", 1: "t"}, "tgt": {0: "n", 1: "s"}}
    make = module("Transformer", 8, 2, 1, 1, 16, batch_first=True)
    yield Case("Transformer", make, pair, both, other)


def layers_of_two_inputs() -> Iterator[Case]:
    """Layers, and losses, of two inputs."""
    names = ("input1", "input2")
    both = {name: {0: "n"} for name in names}
    pair, other = (normal(3, 4), normal(3, 4) + 1), (normal(5, 4), normal(5, 4) - 1)
    yield Case("Bilinear", module("Bilinear", 4, 4, 3), pair, both, other)
    xs = {"x1": {0: "n"}, "x2": {0: "n"}}
    yield Case("CosineSimilarity", module("CosineSimilarity"), pair, xs, other)
    yield Case("PairwiseDistance", module("PairwiseDistance"), pair, xs, other)
    losses = {"input": {0: "n"}, "target": {0: "n"}}
    for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"):
        yield Case(name, module(name), pair, losses, other)
    classes = (normal(3, 4), tokens(3, most=4)), (normal(5, 4), tokens(5, most=4))
    yield Case("CrossEntropyLoss", module("CrossEntropyLoss"), classes[0], losses, classes[1])
    ones = [(x, (y > 0).astype(np.float32)) for x, y in (pair, other)]
    yield Case("BCEWithLogitsLoss", module("BCEWithLogitsLoss"), ones[0], losses, ones[1])


def other_layers() -> Iterator[Case]:
    """Layers that PyTorch does not have, and those of embeddings and positions."""
    for name in ("GEGLU", "SwiGLU", "ReGLU", "Swish", "ThresholdReLU"):
        yield batched(module(name), name, normal(3, 4, 6))
    yield batched(module("Log"), "Log", np.abs(normal(3, 4)) + 1)
    yield batched(module("Normalize", (1,)), "Normalize", normal(3, 4, 6))
    yield batched(module("Reorder", 0, 2, 1), "Reorder", normal(3, 4, 6))
    yield batched(module("View", (-1, 12)), "View", normal(3, 2, 6))
    yield batched(lambda: nn.Residual(nn.Linear(6, 6)), "Residual", normal(3, 6))
    yield batched(lambda: nn.LayerDrop(nn.Linear(6, 6)), "LayerDrop", normal(3, 6))
    yield batched(module("ScalarLayerNorm", (1, 2)), "ScalarLayerNorm", normal(3, 4, 6))
    yield batched(module("TransposedLinear", 6, 5), "TransposedLinear", normal(3, 6))
    yield batched(module("SqueezeExcitation", 4, 2), "SqueezeExcitation", normal(2, 4, 5, 5))
    yield batched(module("SeparableConv1d", 4, 6, 3), "SeparableConv1d", normal(2, 4, 8))
    yield batched(module("AsymmetricConv1d", 4, 6, 3, padding="same"), "AsymmetricConv1d",
                  normal(2, 4, 8))  # fmt: skip
    yield batched(module("CrossMapLRN2d", 2), "CrossMapLRN2d", normal(2, 4, 5, 5))
    yield batched(module("TDSBlock", 2, 3, 4), "TDSBlock", normal(2, 2, 4, 8))
    yield batched(
        module("AdaptiveEmbedding", 50, 8, [10, 20], 2.0), "AdaptiveEmbedding", tokens(2, 7)
    )
    yield batched(module("EmbeddingBag", 50, 4), "EmbeddingBag", tokens(2, 7))
    yield batched(module("SyncBatchNorm", 4), "SyncBatchNorm", normal(3, 4, 6))
    axes = {"input": {0: "n", 1: "t"}}
    long, longer = (normal(2, 5, 8),), (normal(3, 9, 8),)
    for name, args in {
        "RotaryEmbedding": (), "SinusoidalPositionEmbedding": (),
        "LearnedPositionEmbedding": (32, 8), "GroupedQueryAttention": (8, 4, 2),
        "Conformer": (8, 4, 16, 2, 16, 3),
    }.items():  # fmt: skip
        yield Case(name, module(name, *args), long, axes, longer)


def layers() -> Iterator[Case]:
    """Layers of nn."""
    yield from plain_layers()
    yield from layers_by_axes()
    yield from layers_of_sequences()
    yield from layers_of_two_inputs()
    yield from other_layers()


# -- models ------------------------------------------------------------------------------------


def images(name: str, make: Any, size: int = 32, other: int = 0, **options: Any) -> Case:
    """A model of images, whose number varies; and their sizes, if it is tried with an `other`."""
    x, y = normal(2, 3, size, size), normal(3, 3, other or size, other or size)
    axes = {0: "n"} | ({2: "h", 3: "w"} if other else {})
    return Case(name, lambda: make(**options), (x,), {"images": axes}, (y,))


def vision() -> Iterator[Case]:
    """Models of vision, as small as they come."""
    m = gh.vision.models
    yield images("alexnet", m.alexnet, 64, num_classes=5)
    yield images("vgg16", m.vgg16, num_classes=5)
    yield images("resnet18", m.resnet18, 64, 96, num_classes=5)
    yield images("resnet50", m.resnet50, num_classes=5)
    yield images("mobilenet_v2", m.mobilenet_v2, num_classes=5)
    yield images("mobilenet_v3_small", m.mobilenet_v3_small, 64, 96, num_classes=5)
    yield images("efficientnet_b0", m.efficientnet_b0, num_classes=5)
    yield images("convnext_tiny", m.convnext_tiny, num_classes=5)
    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
    yield images("VisionTransformer", m.VisionTransformer, mlp_dim=32, num_classes=5, **vit)
    yield images("deit_tiny_patch16_224", m.deit_tiny_patch16_224, 224, num_classes=5)
    yield images("swin_t", m.swin_t, 64, num_classes=5)
    yield images("UNet", m.UNet, 32, 48, num_classes=2, width=4, depth=2)
    yield images("FCOS", m.FCOS, 64, num_classes=3, backbone="resnet18", channels=16, depth=1)
    yield images("DETR", m.DETR, 64, num_classes=3, backbone="resnet18", layers=2, dim=32, heads=2)


def speech() -> Iterator[Case]:
    """Models of speech, and features of sound."""
    m, s = gh.speech.models, gh.speech
    frames, more = normal(2, 48, 16), normal(3, 60, 16)
    axes = {"features": {0: "n", 1: "t"}}
    small = {"features": 16, "labels": 5, "layers": 1, "dim": 16, "heads": 2}
    yield Case("AsrTransformer", lambda: m.AsrTransformer(ff=32, **small), (frames,), axes, (more,))
    conformer = lambda: m.ConformerCTC(kernel_size=3, pos_context=32, **small)  # noqa: E731
    yield Case("ConformerCTC", conformer, (frames,), axes, (more,))
    tds = lambda: m.TDSCTC(16, 5, (2, 3), (1, 1), 5)  # noqa: E731
    yield Case("TDSCTC", tds, (frames,), axes, (more,))
    sound, other = normal(2, 4000), normal(3, 4000)
    for name in ("Spectrogram", "MelSpectrogram", "LogMelSpectrogram", "MFCC"):
        yield Case(name, getattr(s, name), (sound,), {"waveform": {0: "n"}}, (other,))
    yield batched(s.Deltas, "Deltas", normal(2, 5, 12))


def text() -> Iterator[Case]:
    """Models of text, of two layers."""
    m = gh.text.models
    axes = {"tokens": {0: "n", 1: "t"}}
    few, more = (tokens(2, 5),), (tokens(3, 9),)
    plain = {"vocab": 50, "layers": 2, "dim": 16, "heads": 2, "ff": 32, "max_len": 32}
    for name in ("BertLike", "GptLike"):
        yield Case(name, lambda name=name: getattr(m, name)(**plain), few, axes, more)
    bert = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 32, "max_position_embeddings": 32}  # fmt: skip
    for name in ("BertModel", "BertForSequenceClassification", "BertForMaskedLM"):
        make = lambda name=name: getattr(m, name)(m.BertConfig(**bert))  # noqa: E731
        yield Case(name, make, few, axes, more)
    gpt2 = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    yield Case("GPT2LMHeadModel", lambda: m.GPT2LMHeadModel(m.GPT2Config(**gpt2)), few, axes, more)
    llama = dict(bert, num_key_value_heads=1)
    for kind in ("llama", "mistral", "qwen2", "qwen3"):
        make = lambda kind=kind: m.LlamaForCausalLM(  # noqa: E731
            m.LlamaConfig(model_type=kind, **llama)
        )
        yield Case(f"LlamaForCausalLM, {kind}", make, few, axes, more)
    both = {"tokens": {0: "n", 1: "s"}, "decoder_tokens": {0: "n", 1: "t"}}
    pair, other = (tokens(2, 5), tokens(2, 4)), (tokens(3, 9), tokens(3, 7))
    t5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    make = lambda: m.T5ForConditionalGeneration(m.T5Config(**t5))  # noqa: E731
    yield Case("T5ForConditionalGeneration", make, pair, both, other)
    yield Case("T5EncoderModel", lambda: m.T5EncoderModel(m.T5Config(**t5)), few, axes, more)
    sizes = {"vocab_size": 50, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    ends = ("encoder", "decoder")
    sizes |= {f"{end}_attention_heads": 2 for end in ends}
    sizes |= {f"{end}_ffn_dim": 32 for end in ends}
    marian = dict(sizes, max_position_embeddings=32)
    make = lambda: m.MarianMTModel(m.MarianConfig(**marian))  # noqa: E731
    yield Case("MarianMTModel", make, pair, both, other)


def quantised() -> Iterator[Case]:
    """Layers of 8 bits, and small networks of them."""
    calls = {"static": {}, "dynamic": {}, "dynamic, one scale": {"per_row": False}}

    def case(name: str, make: Callable[[], Any], x: np.ndarray, how: str) -> Case:
        scheme = f"int8_{how.split(',')[0]}"
        options = {"calibrate": [gh.asarray(x)]} if scheme == "int8_static" else calls[how]
        quantise = lambda: gh.quantize(make().eval(), scheme, **options)  # noqa: E731
        return batched(quantise, f"{name}, {how}", x)

    for how in calls:
        linear = lambda: nn.Sequential(nn.Linear(12, 5))  # noqa: E731
        yield case("Int8Linear", linear, normal(3, 12), how)
        yield case("Int8Linear of 3 axes", linear, normal(3, 4, 12), how)
    for how in ("static", "dynamic"):
        for n in (1, 2, 3):
            conv = module(f"Conv{n}d", 4, 6, 3, padding=1, groups=2, stride=2)
            make = lambda conv=conv: nn.Sequential(conv())  # noqa: E731
            yield case(f"Int8Conv{n}d", make, normal(2, 4, *(6, 7, 5)[:n]), how)
        digits = lambda: nn.Sequential(  # noqa: E731
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10),
        )  # fmt: skip
        yield case("network of convolutions", digits, normal(3, 1, 8, 8), how)
        encoder = lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # noqa: E731
        yield case("TransformerEncoderLayer", encoder, normal(2, 5, 8), how)._replace(
            axes={"src": {0: "n"}}
        )


FAMILIES = {"nn": layers, "quantised": quantised, "vision": vision, "speech": speech, "text": text}


# -- comparison --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Nodes of a case by operator, or why it was refused; the largest distance of
    onnxruntime's and of our importer's results from ours, as a part of the largest number."""

    operators: tuple[str, ...] = ()
    refusal: str = ""
    runtime: float = 0.0
    importer: float = 0.0


def arrays_of(tree: Any) -> list[np.ndarray]:
    return [x.numpy() for x in gh.tree.leaves(tree)]


def distance(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference, as a part of the largest number, or of 1."""
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.size:
            low = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            same = np.isclose(a, b, rtol=0, atol=0, equal_nan=True)
            worst = max(
                worst, float(np.where(same, 0, np.abs(np.subtract(a, b, dtype="f8"))).max() / low)
            )
    return worst


def outcome(case: Case, folder: Path) -> Outcome:
    """Export a case, and compare."""
    import onnx
    import onnxruntime

    gh.random.seed(0)
    model = case.make().eval()
    path = folder / "case.onnx"
    try:
        gh.onnx.export(model, case.inputs, path, dynamic_axes=case.axes)
    except Explained as error:
        return Outcome(refusal=str(error))
    proto = onnx.load(str(path))
    onnx.checker.check_model(proto, full_check=True)
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    network, worst = gh.onnx.load(path), [0.0, 0.0]
    names = [x.name for x in session.get_inputs()]
    for inputs in (case.inputs, case.others):
        if not inputs:
            continue
        with gh.no_grad():
            expected = arrays_of(model(*map(gh.asarray, inputs)))
            mine = network(*map(gh.asarray, inputs))
        mine = arrays_of(mine if isinstance(mine, tuple) else (mine,))
        theirs = session.run(None, dict(zip(names, inputs, strict=True)))
        worst = [max(old, distance(new, expected)) for old, new in zip(worst, (theirs, mine))]
    return Outcome(tuple(node.op_type for node in proto.graph.node), "", *worst)


def main() -> None:
    """Print what comes of the cases named, or of all."""
    wanted = sys.argv[1:]
    for family, cases in FAMILIES.items():
        for case in cases():
            if wanted and case.name not in wanted and family not in wanted:
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result: Any = outcome(case, Path(folder))
                    text = (
                        f"{len(result.operators)} nodes {result.runtime:.1e} {result.importer:.1e}"
                    )
                    is_bad = result.refusal or max(result.runtime, result.importer) > 1e-5
                    print("   " if not is_bad else "BAD", family, case.name, result.refusal or text)
                except Exception as error:
                    print("ERR", family, case.name, type(error).__name__, str(error)[:300])


if __name__ == "__main__":
    main()
