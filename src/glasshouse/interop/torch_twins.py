"""The benchmark's models in plain PyTorch, with the parameter names of `gh.vision`, `gh.text` and
`gh.speech`, so that one set of weights fits both.

Each function takes options of its model here and returns a `torch.nn.Module`. There is no dropout
where it has no place in the names: losses are compared without it."""

import math

from glasshouse.interop.torch import import_torch

# Channels in units of the width, 0 being a pooling: VGG-16.
LAYERS_16 = (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0)


def conv_net(features: list, pool: int, linear: list):
    """Features, their mean over a grid of pool × pool, then linear layers."""
    nn = import_torch().nn

    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(*features)
            self.avgpool = nn.AdaptiveAvgPool2d((pool, pool))
            self.classifier = nn.Sequential(*linear)

        def forward(self, images):
            return self.classifier(self.avgpool(self.features(images)).flatten(1))

    return ConvNet()


def alexnet(num_classes=1000, dropout=0.5, width=64):
    """The twin of `gh.vision.models.alexnet`."""
    nn = import_torch().nn
    plan = ((1, 11, 4, 2), (3, 5, 1, 2), (6, 3, 1, 1), (4, 3, 1, 1), (4, 3, 1, 1))
    features, channels = [], 3
    for i, (factor, *window) in enumerate(plan):
        features += [nn.Conv2d(channels, factor * width, *window), nn.ReLU(inplace=True)]
        features += [nn.MaxPool2d(3, 2)] if i in (0, 1, 4) else []
        channels = factor * width
    return conv_net(features, 6, [
        nn.Dropout(dropout), nn.Linear(36 * channels, 64 * width), nn.ReLU(inplace=True),
        nn.Dropout(dropout), nn.Linear(64 * width, 64 * width), nn.ReLU(inplace=True),
        nn.Linear(64 * width, num_classes),
    ])  # fmt: skip


def vgg16(num_classes=1000, dropout=0.5, width=64, hidden=4096):
    """The twin of `gh.vision.models.vgg16`."""
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
    return conv_net(features, 7, [
        nn.Linear(49 * channels, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
        nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout),
        nn.Linear(hidden, num_classes),
    ])  # fmt: skip


def resnet(kernels, expansion, layers, num_classes, width):
    """A residual network whose blocks have convolutions of these sizes."""
    nn = import_torch().nn

    def conv(channels, out, kernel, stride=1):
        made = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
        return made

    class Block(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            out = width * expansion
            sizes = [channels, *[width] * (len(kernels) - 1), out]
            for i, kernel in enumerate(kernels):
                step = stride if i == len(kernels) - 2 else 1
                setattr(self, f"conv{i + 1}", conv(sizes[i], sizes[i + 1], kernel, step))
                setattr(self, f"bn{i + 1}", nn.BatchNorm2d(sizes[i + 1]))
            self.relu, self.downsample = nn.ReLU(inplace=True), None
            if stride != 1 or channels != out:
                shortcut = conv(channels, out, 1, stride)
                self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(out))

        def forward(self, x):
            same = x if self.downsample is None else self.downsample(x)
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if len(kernels) == 3:
                y = self.bn3(self.conv3(self.relu(y)))
            return self.relu(y + same)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = conv(3, width, 7, 2)
            self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            channels = width
            for i, count in enumerate(layers):
                blocks = []
                for j in range(count):
                    blocks.append(Block(channels, width << i, 2 if i and not j else 1))
                    channels = (width << i) * expansion
                setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(channels, num_classes)

        def forward(self, images):
            x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(self.avgpool(x).flatten(1))

    return ResNet()


def resnet18(num_classes=1000, layers=(2, 2, 2, 2), width=64):
    """The twin of `gh.vision.models.resnet18`."""
    return resnet((3, 3), 1, layers, num_classes, width)


def resnet50(num_classes=1000, layers=(3, 4, 6, 3), width=64):
    """The twin of `gh.vision.models.resnet50`."""
    return resnet((1, 3, 1), 4, layers, num_classes, width)


def vit_b_16(num_classes=1000, image_size=224, patch_size=16, num_layers=12, num_heads=12,
             hidden_dim=768, mlp_dim=3072):  # fmt: skip
    """The twin of `gh.vision.models.vit_b_16`."""
    torch = import_torch()
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(hidden_dim, eps=1e-6)
            self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, batch_first=True)
            self.ln_2 = nn.LayerNorm(hidden_dim, eps=1e-6)
            wide, narrow = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
            self.mlp = nn.Sequential(wide, nn.GELU(), nn.Identity(), narrow)

        def forward(self, x):
            y = self.ln_1(x)
            x = x + self.self_attention(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.ln_2(x))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            length = (image_size // patch_size) ** 2 + 1
            self.pos_embedding = nn.Parameter(torch.randn(1, length, hidden_dim) * 0.02)
            self.layers = nn.Sequential()
            for i in range(num_layers):
                self.layers.add_module(f"encoder_layer_{i}", Block())
            self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)

        def forward(self, x):
            return self.ln(self.layers(x + self.pos_embedding))

    class VisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.class_token = nn.Parameter(torch.zeros(1, 1, hidden_dim))
            self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size)
            self.encoder = Encoder()
            self.heads = nn.Sequential()
            self.heads.add_module("head", nn.Linear(hidden_dim, num_classes))

        def forward(self, images):
            x = self.conv_proj(images).flatten(2).transpose(1, 2)
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
            return self.heads(self.encoder(x)[:, 0])

    return VisionTransformer()


def encoder_layers(count, dim, heads, ff, activation):
    """Post-norm encoder layers in a row."""
    nn = import_torch().nn
    options = {"dropout": 0.0, "activation": activation, "batch_first": True}
    layers = (nn.TransformerEncoderLayer(dim, heads, ff, **options) for _ in range(count))
    return nn.Sequential(*layers)


def bert(vocab=50265, layers=24, dim=1024, heads=16, ff=4096, max_len=512):
    """The twin of `gh.text.models.BertLike`."""
    torch = import_torch()
    nn = torch.nn

    class BertLike(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab, dim)
            self.positions, self.norm = nn.Embedding(max_len, dim), nn.LayerNorm(dim)
            self.layers = encoder_layers(layers, dim, heads, ff, "gelu")
            self.output = nn.Linear(dim, vocab)
            for table in (self.tokens, self.positions):
                nn.init.normal_(table.weight, std=0.02)

        def forward(self, tokens):
            at = torch.arange(tokens.shape[1], device=tokens.device)
            return self.output(self.layers(self.norm(self.tokens(tokens) + self.positions(at))))

    return BertLike()


def asr(features=80, labels=30, layers=36, dim=768, heads=4, ff=3072, max_len=4096):
    """The twin of `gh.speech.models.AsrTransformer`."""
    torch = import_torch()
    nn = torch.nn

    class AsrTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(features)
            self.conv = nn.Conv1d(features, 2 * dim, 7, stride=3, padding=3)
            rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
            angles = torch.arange(max_len)[:, None] * rates
            waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
            self.register_buffer("positions", waves, persistent=False)
            self.layers = encoder_layers(layers, dim, heads, ff, "relu")
            self.output = nn.Linear(dim, labels)

        def forward(self, features):
            x = self.conv(self.norm(features).transpose(1, 2))
            x = nn.functional.glu(x, dim=1).transpose(1, 2)
            return self.output(self.layers(x + self.positions[: x.shape[1]]))

    return AsrTransformer()


TWINS = {"alexnet": alexnet, "vgg16": vgg16, "resnet18": resnet18, "resnet50": resnet50,
         "vit_b_16": vit_b_16, "bert": bert, "asr": asr}  # fmt: skip
