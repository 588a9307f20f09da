"""FCOS: a detector that predicts, at each place of a pyramid of features, the box around it."""

import math
from functools import cache
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.metrics.detection import areas
from glasshouse.nn.functional import (
    binary_cross_entropy_with_logits,
    interpolate,
    relu,
    sigmoid,
    sigmoid_focal_loss,
)
from glasshouse.tensor import (
    Tensor,
    arange,
    asarray,
    broadcast_arrays,
    concat,
    maximum,
    reshape,
    sqrt,
    stack,
)
from glasshouse.vision.boxes import (
    batched_nms,
    check_targets,
    clip_boxes_to_image,
    complete_overlap,
)
from glasshouse.vision.models.resnet import ResNetBody

LEVELS = (3, 4, 5, 6, 7)  # powers of two by which the pyramid's parts are smaller than the image


class FeaturePyramid(nn.Module):
    """Features of several sizes, each with the smaller ones added, and two smaller ones.

    Shapes: (N, C_i, H_i, W_i), each half of the one before -> two more of (N, channels, H_i, W_i).
    Source: Lin et al. 2016, arXiv:1612.03144; names as in torchvision.
    """

    def __init__(self, sizes: list[int], channels: int = 256) -> None:
        super().__init__()
        inner = [nn.Sequential(nn.Conv2d(size, channels, 1)) for size in sizes]
        outer = [nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1)) for _ in sizes]
        self.inner_blocks: nn.ModuleList = nn.ModuleList(inner)
        self.layer_blocks: nn.ModuleList = nn.ModuleList(outer)
        more = {
            name: nn.Conv2d(channels, channels, 3, stride=2, padding=1) for name in ("p6", "p7")
        }
        self.extra_blocks: nn.ModuleDict = nn.ModuleDict(more)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                nn.init.zeros_(module.bias)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        inner = [block(x) for block, x in zip(self.inner_blocks, features, strict=True)]
        for i in range(len(inner) - 2, -1, -1):
            inner[i] = inner[i] + interpolate(inner[i + 1], size=inner[i].shape[2:])
        results = [block(x) for block, x in zip(self.layer_blocks, inner, strict=True)]
        results.append(self.extra_blocks["p6"](results[-1]))
        return [*results, self.extra_blocks["p7"](relu(results[-1]))]


class PyramidBackbone(nn.Module):
    """A ResNet's last three stages through a feature pyramid.

    Shapes: images (N, 3, H, W) -> five of (N, channels, H / 8, W / 8) to (N, channels, H / 128 …).
    Source: as FeaturePyramid's.
    """

    def __init__(self, body: ResNetBody, channels: int) -> None:
        super().__init__()
        self.body = body
        self.fpn: FeaturePyramid = FeaturePyramid(body.channels[1:], channels)

    def forward(self, images: Tensor) -> list[Tensor]:
        return self.fpn(self.body(images)[1:])


class FCOSBranch(nn.Module):
    """`depth` convolutions with norms, then one for each output, by name with its channels.

    Shapes: (N, C, H, W) -> by name (N, H · W, channels).
    """

    def __init__(self, channels: int, depth: int, outputs: dict[str, int]) -> None:
        super().__init__()
        parts = []
        for _ in range(depth):
            norm = nn.GroupNorm(math.gcd(32, channels), channels)
            parts += [nn.Conv2d(channels, channels, 3, padding=1), norm, nn.ReLU()]
        self.conv: nn.Sequential = nn.Sequential(*parts)
        self.outputs: list[str] = list(outputs)
        for name, size in outputs.items():
            self.add_module(name, nn.Conv2d(channels, size, 3, padding=1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.conv(x)
        flat = {name: self.get_submodule(name)(x).flatten(2) for name in self.outputs}
        return {name: y.transpose(1, 2) for name, y in flat.items()}


class FCOS(nn.Module):
    """A detector: of each place of the pyramid the scores of the classes ("cls_logits"), the box
    around it ("boxes", in pixels) and whether it lies in its middle ("bbox_ctrness").

    Images are normalized and of one size. To train: `loss(outputs, assign(targets, size))`, of
    which `assign` computes with NumPy, for instance where batches are loaded. To use:
    `detect(outputs, size)`. Classes are numbered from 0.

    Shapes: images (N, 3, H, W) -> by name (N, places, num_classes), (N, places, 4), (N, places, 1).
    Source: Tian et al. 2019, arXiv:1904.01355; 2020, arXiv:2006.09214; names as in torchvision.
    Example:
        >>> model = FCOS(2, "resnet18", channels=8, depth=1, width=4)
        >>> model(gh.zeros((1, 3, 64, 64)))["cls_logits"].shape
        (1, 86, 2)
    """

    def __init__(
        self,
        num_classes: int,
        backbone: str = "resnet50",
        *,
        channels: int = 256,
        depth: int = 4,
        frozen: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.backbone: PyramidBackbone = PyramidBackbone(
            ResNetBody(backbone, frozen, **options), channels
        )
        branches = {"classification_head": {"cls_logits": num_classes}}
        branches["regression_head"] = {"bbox_reg": 4, "bbox_ctrness": 1}
        heads = {name: FCOSBranch(channels, depth, parts) for name, parts in branches.items()}
        self.head: nn.ModuleDict = nn.ModuleDict(heads)
        rare = -math.log(99)  # a class is somewhere with probability 0.01 at first
        nn.init.constant_(heads["classification_head"].cls_logits.bias, rare)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        levels = []
        for level, x in zip(LEVELS, self.backbone(images)):
            outputs = {k: y for head in self.head.values() for k, y in head(x).items()}
            x, y = centres_of(images.shape[2:], level)
            centres = reshape(stack(list(broadcast_arrays(x, y[:, None])), axis=-1), (-1, 2))
            distances = relu(outputs.pop("bbox_reg")) * 2**level
            corners = [centres - distances[..., :2], centres + distances[..., 2:]]
            levels.append(outputs | {"boxes": concat(corners, -1)})
        return {name: concat([level[name] for level in levels], axis=1) for name in levels[0]}

    def assign(self, targets: Any, size: tuple[int, int]) -> dict[str, np.ndarray]:
        """For each place the target that it is to find, as arrays: "labels", -1 where there is
        none, "boxes", and "ctrness", 1 in the middle of the box. A target is a dict with "boxes"
        (M, 4) and "labels" (M,). A place finds the smallest box that it lies in, if the box's
        centre is near and its size is right for the level.

        Shapes: -> (N, places), (N, places, 4), (N, places).
        Raises: DTypeError for other than dicts, OptionError for a box without an area,
            IndexOutOfRangeError for a label outside 0 … num_classes - 1.
        Source: Tian et al. 2020, arXiv:2006.09214, sec. 3, with a radius of 1.5.
        """
        targets = check_targets("FCOS.assign", targets, self.num_classes)
        hits = [goals_of(*places(*size), *target) for target in targets]
        names = ("labels", "boxes", "ctrness")
        return {name: np.stack(part) for name, part in zip(names, zip(*hits, strict=True))}

    def loss(self, outputs: dict[str, Tensor], goals: dict[str, Any]) -> dict[str, Tensor]:
        """The parts of the loss by name; their sum is to be minimized. `goals` is of `assign`.

        Shapes: -> () each.
        Source: as FCOS's.
        """
        labels, boxes, ctrness = (asarray(goals[k]) for k in ("labels", "boxes", "ctrness"))
        logits, hits = outputs["cls_logits"], (labels >= 0).astype("float32")
        count = maximum(hits.sum(), 1)
        classes = labels[..., None] == arange(self.num_classes)
        score = sigmoid_focal_loss(logits, classes.astype(logits.dtype), reduction="sum")
        overlap = complete_overlap(outputs["boxes"], boxes)
        middle = outputs["bbox_ctrness"][..., 0]
        middle = binary_cross_entropy_with_logits(middle, ctrness, reduction="none")
        return {
            "classification": score / count,
            "bbox_regression": ((1 - overlap) * hits).sum() / count,
            "bbox_ctrness": (middle * hits).sum() / count,
        }

    @staticmethod
    def detect(
        outputs: dict[str, Tensor],
        size: tuple[int, int],
        *,
        score_thresh: float = 0.2,
        nms_thresh: float = 0.6,
        detections_per_img: int = 100,
        topk_candidates: int = 1000,
    ) -> list[dict[str, np.ndarray]]:
        """Of each image, by falling score, "boxes" (K, 4) inside the image of (height, width),
        "scores" (K,) and "labels" (K,): the best candidates of each level, without those that
        overlap with better ones of their class.

        Shapes: as above.
        Source: torchvision.
        """
        scores = sqrt(sigmoid(outputs["cls_logits"]) * sigmoid(outputs["bbox_ctrness"]))
        boxes = clip_boxes_to_image(outputs["boxes"], size)
        ends = np.cumsum(places(*size)[2])[:-1]
        results = []
        for score, box in zip(scores.detach().numpy(), boxes.detach().numpy(), strict=True):
            candidates = []
            for level in np.split(np.arange(len(score)), ends):
                at, label = np.nonzero(score[level] > score_thresh)
                best = np.argsort(-score[level][at, label], kind="stable")[:topk_candidates]
                candidates.append(np.stack([level[at[best]], label[best]]))
            at, label = np.concatenate(candidates, axis=1)
            stay = batched_nms(box[at], score[at, label], label, nms_thresh)[:detections_per_img]
            at, label = at[stay], label[stay]
            results.append({"boxes": box[at], "scores": score[at, label], "labels": label})
        return results


def centres_of(size: tuple[int, ...], level: int) -> tuple[Tensor, Tensor]:
    """The x of each column of places at a level, the y of each row, in an image (height, width)."""
    counts = [math.ceil(side / 2**level) for side in reversed(size)]
    x, y = (arange(n, dtype="float32") * (side // n) for n, side in zip(counts, reversed(size)))
    return x, y


@cache
def places(height: int, width: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(the centre (x, y) of each place, the size of each, how many each level has)."""
    grids = [np.meshgrid(*map(np.asarray, centres_of((height, width), n))) for n in LEVELS]
    counts = [x.size for x, _ in grids]
    centres = [np.stack([x.ravel(), y.ravel()], axis=1) for x, y in grids]
    return np.concatenate(centres), np.repeat(2.0 ** np.array(LEVELS), counts), counts


def goals_of(
    centres: np.ndarray, sizes: np.ndarray, counts: list[int], boxes: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(label or -1, box, ctrness) of each place; a place without a box has its own."""
    own = np.concatenate([centres - sizes[:, None] / 2, centres + sizes[:, None] / 2], axis=1)
    if not len(boxes):
        return np.full(len(sizes), -1), own, np.zeros(len(sizes), np.float32)
    distances = np.concatenate(
        [centres[:, None] - boxes[:, :2], boxes[:, 2:] - centres[:, None]], 2
    )
    from_middle = np.abs(centres[:, None] - (boxes[:, :2] + boxes[:, 2:]) / 2).max(axis=2)
    low, high = sizes * 4, sizes * 8
    low[: counts[0]], high[-counts[-1] :] = 0, np.inf
    furthest = distances.max(axis=2)
    fits = (from_middle < 1.5 * sizes[:, None]) & (distances.min(axis=2) > 0)
    fits &= (furthest > low[:, None]) & (furthest < high[:, None])
    best = np.where(fits, areas(boxes), np.inf).argmin(axis=1)
    hits = fits.any(axis=1)
    sides = np.maximum(distances[np.arange(len(best)), best], 1e-9)  # left, top, right, bottom
    pairs = np.minimum(sides[:, :2], sides[:, 2:]) / np.maximum(sides[:, :2], sides[:, 2:])
    ctrness = np.where(hits, np.sqrt(pairs[:, 0] * pairs[:, 1]), 0).astype(np.float32)
    boxes = np.where(hits[:, None], boxes[best], own).astype(np.float32)
    return np.where(hits, labels[best], -1), boxes, ctrness
