"""The benchmark's models in plain PyTorch, with the parameter names of `gh.vision`, `gh.text` and
`gh.speech`, so that one set of weights fits both.

Each function is the twin of the model of its name: it takes options of it and returns a
`torch.nn.Module`, without dropout where that has no place in the names."""

import math
from collections.abc import Callable
from typing import Any

from glasshouse.bench.torch_cases import import_transformers
from glasshouse.interop.torch import import_torch

# Channels in units of the width, 0 being a pooling: VGG-16.
LAYERS_16 = (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0)


def module(forward: Callable[..., Any], **parts: Any) -> Any:
    """A module of these parts, parameters or modules, whose forward is `forward(self, x)`."""
    nn = import_torch().nn
    twin = type("Twin", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(twin, name, part)
    return twin


def conv_net(features: list[Any], pool: int, linear: list[Any]) -> Any:
    nn = import_torch().nn
    return module(
        lambda self, images: self.classifier(self.avgpool(self.features(images)).flatten(1)),
        features=nn.Sequential(*features),
        avgpool=nn.AdaptiveAvgPool2d((pool, pool)),
        classifier=nn.Sequential(*linear),
    )


def alexnet(num_classes: int = 1000, dropout: float = 0.5, width: int = 64) -> Any:
    nn = import_torch().nn
    plan = ((1, 11, 4, 2), (3, 5, 1, 2), (6, 3, 1, 1), (4, 3, 1, 1), (4, 3, 1, 1))
    features, channels = [], 3
    for i, (factor, *window) in enumerate(plan):
        features += [nn.Conv2d(channels, factor * width, *window), nn.ReLU(inplace=True)]
        features += [nn.MaxPool2d(3, 2)] if i in (0, 1, 4) else []
        channels = factor * width
    return conv_net(
        features,
        6,
        [
            nn.Dropout(dropout),
            nn.Linear(36 * channels, 64 * width),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(64 * width, 64 * width),
            nn.ReLU(inplace=True),
            nn.Linear(64 * width, num_classes),
        ],
    )


def vgg16(
    num_classes: int = 1000, dropout: float = 0.5, width: int = 64, hidden: int = 4096
) -> Any:
    nn = import_torch().nn
    features, channels = [], 3
    for factor in LAYERS_16:
        if not factor:
            features.append(nn.MaxPool2d(2, 2))
            continue
        conv = nn.Conv2d(channels, factor * width, 3, padding=1)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        features += [conv, nn.ReLU(inplace=True)]
        channels = factor * width
    return conv_net(
        features,
        7,
        [
            nn.Linear(49 * channels, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        ],
    )


def conv(channels: int, out: int, kernel: int, stride: int = 1) -> Any:
    nn = import_torch().nn
    layer = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def residual_block(
    kernels: tuple[int, ...], channels: int, width: int, out: int, stride: int
) -> Any:
    nn = import_torch().nn
    sizes = [channels, *[width] * (len(kernels) - 1), out]
    parts = {"relu": nn.ReLU(inplace=True)}
    for i, kernel in enumerate(kernels):
        step = stride if i == len(kernels) - 2 else 1
        parts[f"conv{i + 1}"] = conv(sizes[i], sizes[i + 1], kernel, step)
        parts[f"bn{i + 1}"] = nn.BatchNorm2d(sizes[i + 1])
    shortcut = nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out))
    parts["downsample"] = nn.Identity() if stride == 1 and channels == out else shortcut

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if len(kernels) == 3:
            y = self.bn3(self.conv3(self.relu(y)))
        return self.relu(y + self.downsample(x))

    return module(forward, **parts)


def resnet(
    kernels: tuple[int, ...], expansion: int, layers: tuple[int, ...], num_classes: int, width: int
) -> Any:
    """A residual network whose blocks have convolutions of these sizes."""
    nn = import_torch().nn
    parts, channels = {}, width
    for i, count in enumerate(layers):
        blocks, wide = [], width << i
        for j in range(count):
            stride = 2 if i and not j else 1
            blocks.append(residual_block(kernels, channels, wide, wide * expansion, stride))
            channels = wide * expansion
        parts[f"layer{i + 1}"] = nn.Sequential(*blocks)

    def forward(self, images):
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    return module(
        forward,
        conv1=conv(3, width, 7, 2),
        bn1=nn.BatchNorm2d(width),
        relu=nn.ReLU(inplace=True),
        maxpool=nn.MaxPool2d(3, 2, 1),
        **parts,
        avgpool=nn.AdaptiveAvgPool2d((1, 1)),
        fc=nn.Linear(channels, num_classes),
    )


def resnet18(
    num_classes: int = 1000, layers: tuple[int, ...] = (2, 2, 2, 2), width: int = 64
) -> Any:
    return resnet((3, 3), 1, layers, num_classes, width)


def resnet50(
    num_classes: int = 1000, layers: tuple[int, ...] = (3, 4, 6, 3), width: int = 64
) -> Any:
    return resnet((1, 3, 1), 4, layers, num_classes, width)


def vit_b_16(
    num_classes: int = 1000,
    image_size: int = 224,
    patch_size: int = 16,
    num_layers: int = 12,
    num_heads: int = 12,
    hidden_dim: int = 768,
    mlp_dim: int = 3072,
) -> Any:
    torch = import_torch()
    nn = torch.nn

    def block_forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))

    def norm():
        return nn.LayerNorm(hidden_dim, eps=1e-6)

    def block():
        attention = nn.MultiheadAttention(hidden_dim, num_heads, batch_first=True)
        wide, narrow = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
        mlp = nn.Sequential(wide, nn.GELU(), nn.Identity(), narrow)
        return module(block_forward, ln_1=norm(), self_attention=attention, ln_2=norm(), mlp=mlp)

    def forward(self, images):
        x = self.conv_proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])

    length, blocks, heads = (image_size // patch_size) ** 2 + 1, nn.Sequential(), nn.Sequential()
    for i in range(num_layers):
        blocks.add_module(f"encoder_layer_{i}", block())
    heads.add_module("head", nn.Linear(hidden_dim, num_classes))
    encoder = module(
        lambda self, x: self.ln(self.layers(x + self.pos_embedding)),
        pos_embedding=nn.Parameter(torch.randn(1, length, hidden_dim) * 0.02),
        layers=blocks,
        ln=norm(),
    )
    return module(
        forward,
        class_token=nn.Parameter(torch.zeros(1, 1, hidden_dim)),
        conv_proj=nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size),
        encoder=encoder,
        heads=heads,
    )


def encoder_layers(count: int, dim: int, heads: int, ff: int, activation: str) -> Any:
    nn = import_torch().nn
    options = {"dropout": 0.0, "activation": activation, "batch_first": True}
    layers = (nn.TransformerEncoderLayer(dim, heads, ff, **options) for _ in range(count))
    return nn.Sequential(*layers)


def bert(
    vocab: int = 50265,
    layers: int = 24,
    dim: int = 1024,
    heads: int = 16,
    ff: int = 4096,
    max_len: int = 512,
) -> Any:
    torch = import_torch()
    nn = torch.nn

    def forward(self, tokens):
        at = torch.arange(tokens.shape[1], device=tokens.device)
        return self.output(self.layers(self.norm(self.tokens(tokens) + self.positions(at))))

    tokens, positions = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
    for table in (tokens, positions):
        nn.init.normal_(table.weight, std=0.02)
    return module(
        forward,
        tokens=tokens,
        positions=positions,
        norm=nn.LayerNorm(dim),
        layers=encoder_layers(layers, dim, heads, ff, "gelu"),
        output=nn.Linear(dim, vocab),
    )


def asr(
    features: int = 80,
    labels: int = 30,
    layers: int = 36,
    dim: int = 768,
    heads: int = 4,
    ff: int = 3072,
    max_len: int = 4096,
) -> Any:
    torch = import_torch()
    nn = torch.nn

    def forward(self, features):
        x = self.conv(self.norm(features).transpose(1, 2))
        x = nn.functional.glu(x, dim=1).transpose(1, 2)
        return self.output(self.layers(x + self.positions[: x.shape[1]]))

    model = module(
        forward,
        norm=nn.LayerNorm(features),
        conv=nn.Conv1d(features, 2 * dim, 7, stride=3, padding=3),
        layers=encoder_layers(layers, dim, heads, ff, "relu"),
        output=nn.Linear(dim, labels),
    )
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
    angles = torch.arange(max_len)[:, None] * rates
    waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
    model.register_buffer("positions", waves, persistent=False)
    return model


def double_conv(channels: int, out: int) -> Any:
    nn = import_torch().nn
    parts = []
    for size in (channels, out):
        convolution = nn.Conv2d(size, out, 3, padding=1, bias=False)
        parts += [convolution, nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


def unet(num_classes: int, channels: int = 3, width: int = 64, depth: int = 4) -> Any:
    torch = import_torch()
    nn = torch.nn
    widths = [width << i for i in range(depth + 1)]
    pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
    downward = zip([channels, *widths], widths, strict=False)

    def forward(self, images):
        x, results = images, []
        for i, layer in enumerate(self.down):
            x = layer(self.pool(x) if i else x)
            results.append(x)
        for beside, reduce, up in zip(results[-2::-1], self.reduce, self.up, strict=True):
            x = nn.functional.interpolate(reduce(x), size=beside.shape[2:], mode="bilinear")
            x = up(torch.cat([beside, x], dim=1))
        return self.head(x)

    return module(
        forward,
        down=nn.ModuleList(double_conv(*pair) for pair in downward),
        reduce=nn.ModuleList(nn.Conv2d(high, low, 1) for high, low in pairs),
        up=nn.ModuleList(double_conv(2 * low, low) for _, low in pairs),
        head=nn.Conv2d(width, num_classes, 1),
        pool=nn.MaxPool2d(2),
    )


def conformer_block(dim: int, heads: int, kernel_size: int, context: int) -> Any:
    torch = import_torch()
    nn, functional = torch.nn, torch.nn.functional

    def feed_forward():
        wide, narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        empty = nn.Identity(), nn.Identity()  # in the places of dropout
        return nn.Sequential(nn.LayerNorm(dim), wide, nn.SiLU(), empty[0], narrow, empty[1])

    def attention(self, x):
        n, steps, _ = x.shape
        x = self.norm_attention(x)
        parts = (self.query(x), self.key(x), self.value(x))
        q, k, v = (p.unflatten(-1, (heads, -1)).transpose(1, 2) for p in parts)
        rows = self.positions[context - steps : context + steps - 1]
        scores = (q * q.shape[-1] ** -0.5) @ rows.T
        flat = functional.pad(scores, (0, 1)).flatten(2)[..., steps - 1 :]
        places = flat[..., : steps * (2 * steps - 1)].reshape(n, heads, steps, -1)[..., :steps]
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=places)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.ff1(x) * 0.5
        x = x + attention(self, x)
        y = functional.glu(self.conv1(self.norm_conv1(x)))
        y = self.depthwise(y.transpose(1, 2)).transpose(1, 2)
        x = x + self.conv2(functional.silu(self.norm_conv2(y)))
        return self.norm(x + self.ff2(x) * 0.5)

    norms = {name: nn.LayerNorm(dim) for name in ("norm_conv1", "norm_conv2", "norm")}
    maps = {name: nn.Linear(dim, dim) for name in ("query", "key", "value", "out")}
    return module(
        forward,
        positions=nn.Parameter(torch.empty(2 * context - 1, dim // heads).uniform_(-0.1, 0.1)),
        ff1=feed_forward(),
        ff2=feed_forward(),
        norm_attention=nn.LayerNorm(dim),
        **maps,
        **norms,
        conv1=nn.Linear(dim, 2 * dim),
        depthwise=nn.Conv1d(dim, dim, kernel_size, padding="same", groups=dim),
        conv2=nn.Linear(dim, dim),
    )


def conformer(
    features: int = 80,
    labels: int = 30,
    layers: int = 16,
    dim: int = 256,
    heads: int = 4,
    kernel_size: int = 31,
    pos_context: int = 1024,
    dropout: float = 0.0,
) -> Any:
    nn = import_torch().nn
    convs = (nn.Conv2d(1, dim, 3, stride=2), nn.Conv2d(dim, dim, 3, stride=2))
    bands = ((features - 1) // 2 - 1) // 2
    blocks = (conformer_block(dim, heads, kernel_size, pos_context) for _ in range(layers))

    def forward(self, features):
        x = self.conv(features[:, None]).transpose(1, 2)
        x = self.input(x.flatten(2))
        for layer in self.layers:
            x = layer(x)
        return self.output(x)

    return module(
        forward,
        conv=nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU()),
        input=nn.Linear(dim * bands, dim),
        layers=nn.ModuleList(blocks),
        output=nn.Linear(dim, labels),
    )


def lstm(vocab: int = 10000, width: int = 512, layers: int = 2, tags: int = 50) -> Any:
    nn = import_torch().nn
    return module(
        lambda self, words: self.scores(self.lstm(self.embedding(words))[0]),
        embedding=nn.Embedding(vocab, width),
        lstm=nn.LSTM(width, width, layers, batch_first=True),
        scores=nn.Linear(width, tags),
    )


def llama(**options: Any) -> Any:
    """transformers' own."""
    transformers = import_transformers()
    config = transformers.LlamaConfig(**options, use_cache=False)
    model = transformers.LlamaForCausalLM(config)
    forward = model.forward
    model.forward = lambda tokens: forward(tokens).logits
    return model


def detr(
    num_classes: int,
    backbone: str = "resnet50",
    *,
    dim: int = 256,
    heads: int = 8,
    hidden: int = 2048,
    layers: int = 6,
    queries: int = 100,
    dropout: float = 0.1,
) -> Any:
    """transformers' own, which trains all of its backbone."""
    transformers = import_transformers()
    sizes = {"d_model": dim, "num_queries": queries, "num_labels": num_classes, "dropout": dropout}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": layers, f"{part}_attention_heads": heads}
        sizes |= {f"{part}_ffn_dim": hidden}
    config = transformers.DetrConfig(**sizes, use_pretrained_backbone=False, backbone=backbone)
    model = transformers.DetrForObjectDetection(config).requires_grad_(True)
    classes, boxes, body = model.class_labels_classifier, model.bbox_predictor, model.model

    def forward(images):
        outputs = body(images, output_hidden_states=True)
        before = map(body.decoder.layernorm, outputs.decoder_hidden_states[1:-1])
        y = import_torch().stack([*before, outputs.last_hidden_state])  # which is normed
        return classes(y), boxes(y).sigmoid()

    model.forward = forward
    return model


def class_loss(scores: Any, targets: Any) -> Any:
    return import_torch().nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


def pixel_loss(scores: Any, targets: Any) -> Any:
    return import_torch().nn.functional.cross_entropy(scores, targets)


def speech_loss(scores: Any, *targets: Any) -> Any:
    functional = import_torch().nn.functional
    log_probs = functional.log_softmax(scores.float(), dim=-1).transpose(0, 1)
    return functional.ctc_loss(log_probs, *targets)


def box_loss(outputs: Any, labels: Any, boxes: Any) -> Any:
    """Of each layer the weighted cross-entropy, distances of sides, and generalised overlap."""
    torch = import_torch()
    total: Any = 0.0
    for logits, places in zip(*outputs, strict=True):
        none = logits.shape[-1] - 1
        weight = logits.new_ones(none + 1)
        weight[none] = 0.1
        hits = (labels < none).to(logits.dtype)
        classes = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, weight)
        apart = (places - boxes).abs().sum(-1) + 0.4 * (1 - generalized_overlap(places, boxes))
        total = total + classes + 5 * (apart * hits).sum() / hits.sum().clamp(1)
    return total


def generalized_overlap(first: Any, second: Any) -> Any:
    """Of boxes as centre and sides: their overlap, less the part of their hull in neither."""
    torch = import_torch()
    ends = [(box[..., :2] - box[..., 2:] / 2, box[..., :2] + box[..., 2:] / 2)
            for box in (first, second)]  # fmt: skip
    (low, high), (other_low, other_high) = ends
    inner = (torch.minimum(high, other_high) - torch.maximum(low, other_low)).clamp(0).prod(-1)
    hull = (torch.maximum(high, other_high) - torch.minimum(low, other_low)).prod(-1)
    union = first[..., 2:].prod(-1) + second[..., 2:].prod(-1) - inner
    return inner / (union + 1e-7) - (hull - union) / (hull + 1e-7)  # as torchvision


TWINS = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "vit_b_16": vit_b_16,
    "bert": bert,
    "asr": asr,
    "detr": detr,
    "unet": unet,
    "conformer": conformer,
    "llama": llama,
    "lstm": lstm,
}
LOSSES = {loss.__name__: loss for loss in (class_loss, pixel_loss, speech_loss, box_loss)}
