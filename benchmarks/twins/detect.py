"""The detector of `glasshouse train detect` in PyTorch."""

import math

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, interpolate, one_hot, relu


def block_conv(channels, out, stride=1):
    return nn.Conv2d(channels, out, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1, self.bn1 = block_conv(channels, out, stride), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = block_conv(out, out), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            conv = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class Body(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.maxpool = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, 1)
        sizes = [width, *(width << i for i in range(4))]
        for i in range(4):
            first = BasicBlock(sizes[i], sizes[i + 1], 2 if i else 1)
            second = BasicBlock(sizes[i + 1], sizes[i + 1], 1)
            self.add_module(f"layer{i + 1}", nn.Sequential(first, second))

    def forward(self, x):
        x, results = self.maxpool(relu(self.bn1(self.conv1(x)))), []
        for i in range(4):
            x = self.get_submodule(f"layer{i + 1}")(x)
            results.append(x)
        return results[1:]


class Pyramid(nn.Module):
    def __init__(self, sizes, channels):
        super().__init__()
        self.inner_blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(x, channels, 1)) for x in sizes)
        outer = (nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1)) for _ in sizes)
        self.layer_blocks = nn.ModuleList(outer)
        more = {x: nn.Conv2d(channels, channels, 3, 2, 1) for x in ("p6", "p7")}
        self.extra_blocks = nn.ModuleDict(more)

    def forward(self, features):
        inner = [block(x) for block, x in zip(self.inner_blocks, features)]
        for i in range(len(inner) - 2, -1, -1):
            inner[i] = inner[i] + interpolate(inner[i + 1], size=inner[i].shape[2:])
        results = [block(x) for block, x in zip(self.layer_blocks, inner)]
        results.append(self.extra_blocks["p6"](results[-1]))
        return [*results, self.extra_blocks["p7"](relu(results[-1]))]


class Branch(nn.Module):
    def __init__(self, channels, depth, outputs):
        super().__init__()
        parts = []
        for _ in range(depth):
            norm = nn.GroupNorm(math.gcd(32, channels), channels)
            parts += [nn.Conv2d(channels, channels, 3, padding=1), norm, nn.ReLU()]
        self.conv, self.outputs = nn.Sequential(*parts), list(outputs)
        for name, size in outputs.items():
            self.add_module(name, nn.Conv2d(channels, size, 3, padding=1))

    def forward(self, x):
        x = self.conv(x)
        return {n: self.get_submodule(n)(x).flatten(2).transpose(1, 2) for n in self.outputs}


class FCOS(nn.Module):
    def __init__(self, classes, recipe):
        super().__init__()
        width, channels, depth = recipe.width, recipe.channels, recipe.depth
        self.backbone = nn.Module()
        self.backbone.body = Body(width)
        self.backbone.fpn = Pyramid([2 * width, 4 * width, 8 * width], channels)
        regression = {"bbox_reg": 4, "bbox_ctrness": 1}
        heads = {"classification_head": Branch(channels, depth, {"cls_logits": classes})}
        heads["regression_head"] = Branch(channels, depth, regression)
        self.head = nn.ModuleDict(heads)

    def forward(self, images):
        levels, centres, sizes = [], [], []
        for x in self.backbone.fpn(self.backbone.body(images)):
            levels.append({k: y for head in self.head.values() for k, y in head(x).items()})
            step = images.shape[2] // x.shape[2]
            place = torch.arange(x.shape[2]) * step
            y, x = torch.meshgrid(place, place, indexing="ij")
            centres.append(torch.stack([x, y], -1).reshape(-1, 2))
            sizes.append(torch.full((len(centres[-1]), 1), float(2 ** (len(sizes) + 3))))
        outputs = {k: torch.cat([level[k] for level in levels], 1) for k in levels[0]}
        centres, distances = torch.cat(centres), relu(outputs.pop("bbox_reg")) * torch.cat(sizes)
        boxes = [centres - distances[..., :2], centres + distances[..., 2:]]
        return outputs | {"boxes": torch.cat(boxes, -1)}


def generalized_overlap(a, b):
    def area(low, high):
        return (high - low).clamp(min=0).prod(-1)

    both = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    hull = area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
    union = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - both
    return both / (union + 1e-7) - (hull - union) / (hull + 1e-7)


def loss(outputs, target):
    goals = target[:, : outputs["boxes"].shape[1]]
    labels, hits = goals[..., 0].long(), (goals[..., 0] >= 0).float()
    logits = outputs["cls_logits"]
    classes = one_hot(labels.clamp(min=0), logits.shape[-1]) * hits[..., None]
    p = logits.sigmoid()
    missed = p + classes - 2 * p * classes
    focal = binary_cross_entropy_with_logits(logits, classes, reduction="none") * missed**2
    focal = (focal * (0.25 * classes + 0.75 * (1 - classes))).sum()
    overlap = generalized_overlap(outputs["boxes"], goals[..., 1:5])
    middle = outputs["bbox_ctrness"][..., 0]
    middle = binary_cross_entropy_with_logits(middle, goals[..., 5], reduction="none")
    return (focal + ((1 - overlap + middle) * hits).sum()) / hits.sum().clamp(min=1)


def make_model(recipe, assets):
    return FCOS(len(assets["classes"]), recipe)


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
