"""DETR: a detector whose queries attend to the image, each to become one box or none."""

import re
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.nn.checks import check_divides
from glasshouse.nn.functional import (
    cross_entropy,
    dropout,
    relu,
    scaled_dot_product_attention,
    sinusoids,
    softmax,
)
from glasshouse.tensor import Tensor, abs, asarray, broadcast_to, concat, zeros_like
from glasshouse.vision.boxes import (
    box_convert,
    check_targets,
    complete_overlap,
    generalized_box_iou,
)
from glasshouse.vision.matching import assignment
from glasshouse.vision.models.resnet import ResNetBody
from glasshouse.vision.models.swin import named

WEIGHTS = {"loss_ce": 1.0, "loss_bbox": 5.0, "loss_giou": 2.0}  # of the loss, and of matching


class PlacedAttention(nn.Module):
    """Attention whose queries and keys, but not its values, have positions added.

    Shapes: x (N, L, dim), memory (N, S, dim), mask (N, 1, 1, S), True where attention may go ->
        (N, L, dim).
    Raises: OptionError unless heads divides dim.
    Source: Carion et al. 2020, arXiv:2005.12872, appendix A; names as in transformers' files.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        check_divides("PlacedAttention", "dim", dim, "heads", heads)
        self.heads = heads
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            self.add_module(name, nn.Linear(dim, dim))

    def forward(
        self, x: Tensor, at: Tensor, memory: Tensor, memory_at: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        q = self.in_heads(self.q_proj(x + at))
        k, v = self.in_heads(self.k_proj(memory + memory_at)), self.in_heads(self.v_proj(memory))
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(y.transpose(1, 2).reshape(x.shape))

    def in_heads(self, x: Tensor) -> Tensor:
        n, length, dim = x.shape
        return x.reshape((n, length, self.heads, dim // self.heads)).transpose(1, 2)


class PlacedLayer(nn.Module):
    """Self-attention, attention to a memory if the layer `is_decoder`, and two linear maps; after
    each x is added, and a norm follows.

    Shapes: (N, L, dim) -> the same.
    Source: as PlacedAttention's.
    """

    def __init__(self, sizes: tuple[int, int, int], rate: float, is_decoder: bool) -> None:
        super().__init__()
        dim, heads, hidden = sizes
        self.attentions: list[str] = ["self_attn", "encoder_attn"] if is_decoder else ["self_attn"]
        for name in self.attentions:
            self.add_module(name, PlacedAttention(dim, heads))
            self.add_module(f"{name}_layer_norm", nn.LayerNorm(dim))
        self.fc1: nn.Linear = nn.Linear(dim, hidden)
        self.fc2: nn.Linear = nn.Linear(hidden, dim)
        self.final_layer_norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.rate = rate

    def forward(self, x: Tensor, at: Tensor, memory: tuple[Any, Any, Any]) -> Tensor:
        sources = {"self_attn": (x, at, None), "encoder_attn": memory}
        if len(self.attentions) == 1:  # an encoder's layer: the memory has its mask alone
            sources["self_attn"] = (x, at, memory[2])
        for name in self.attentions:
            y = self.get_submodule(name)(x, at, *sources[name])
            x = self.get_submodule(f"{name}_layer_norm")(x + self.dropped(y))
        y = self.fc2(relu(self.fc1(x)))
        return self.final_layer_norm(x + self.dropped(y))

    def dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)


class DETR(nn.Module):
    """A detector: "logits" of each query, the last class being "no object", and "boxes", centre
    and sides in parts of the image's. "auxiliary" has the same of each decoder layer but the last,
    while training.

    To train: `loss(outputs, assign(outputs, targets))`. To use: `detect(outputs, sizes)`. Classes
    are numbered from 0. `load_state_dict` takes transformers' names of files and of modules.

    Shapes: images (N, 3, H, W), mask (N, H, W), 0 where an image is padded -> by name
        (N, queries, num_classes + 1), (N, queries, 4).
    Raises: OptionError unless heads divides dim.
    Source: Carion et al. 2020, arXiv:2005.12872; names as in transformers' DetrForObjectDetection.
    Example:
        >>> model = DETR(3, "resnet18", dim=16, heads=2, hidden=16, layers=1, queries=5, width=4)
        >>> model(gh.zeros((1, 3, 64, 64)))["boxes"].shape
        (1, 5, 4)
    """

    def __init__(
        self,
        num_classes: int,
        backbone: str = "resnet50",
        *,
        dim: int = 256,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 6,
        queries: int = 100,
        dropout: float = 0.1,
        frozen: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.dim = dim
        body = ResNetBody(backbone, frozen, **options)
        projection = nn.Conv2d(body.channels[-1], dim, 1)
        stacks = {
            name: [PlacedLayer((dim, heads, hidden), dropout, is_decoder) for _ in range(layers)]
            for name, is_decoder in (("encoder", False), ("decoder", True))
        }
        encoder = nn.ModuleDict({"layers": nn.ModuleList(stacks["encoder"])})
        decoder = {"layers": nn.ModuleList(stacks["decoder"]), "layernorm": nn.LayerNorm(dim)}
        self.model: Any = nn.ModuleDict(
            {
                "backbone": named(conv_encoder=named(model=body)),
                "query_position_embeddings": nn.Embedding(queries, dim),
                "input_projection": projection,
                "encoder": encoder,
                "decoder": nn.ModuleDict(decoder),
            }
        )
        self.class_labels_classifier: nn.Linear = nn.Linear(dim, num_classes + 1)
        maps = [nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 4)]
        self.bbox_predictor: Any = nn.ModuleDict({"layers": nn.ModuleList(maps)})
        for name, p in self.named_parameters():
            if p.ndim > 1 and "backbone" not in name:
                nn.init.xavier_uniform_(p)

    def forward(self, images: Tensor, mask: np.ndarray | None = None) -> dict[str, Any]:
        features = self.model["backbone"](images)[-1]
        x = self.model["input_projection"](features).flatten(2).transpose(1, 2)  # (N, S, dim)
        at, visible = image_places(images.shape, features.shape[2:], mask, self.dim)
        mask_of_places = None if mask is None else asarray(visible[:, None, None])
        for layer in self.model["encoder"]["layers"]:
            x = layer(x, at, (None, None, mask_of_places))
        query_at = self.model["query_position_embeddings"].weight
        query_at = broadcast_to(query_at, (x.shape[0], *query_at.shape))
        y, results = zeros_like(query_at), []
        for layer in self.model["decoder"]["layers"]:
            y = layer(y, query_at, (x, at, mask_of_places))
            results.append(y)
        norm = self.model["decoder"]["layernorm"]
        if not self.training:
            return self.read(norm(results[-1]))
        outputs = [self.read(norm(y)) for y in results]
        return outputs[-1] | {"auxiliary": outputs[:-1]}

    def read(self, y: Tensor) -> dict[str, Tensor]:
        first, second, last = self.bbox_predictor["layers"]
        boxes = last(relu(second(relu(first(y))))).sigmoid()
        return {"logits": self.class_labels_classifier(y), "boxes": boxes}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Take over a state under transformers' names, of its files or of its modules."""
        return super().load_state_dict(file_names(state_dict), strict, assign)

    def assign(self, outputs: dict[str, Any], targets: Any) -> list[dict[str, np.ndarray]]:
        """For the outputs of each layer, the last one first, the target of each query, as arrays:
        "labels", num_classes for no object, and "boxes". A target is a dict with "boxes"
        (M, 4), centre and sides in parts of the image's, and "labels" (M,). Queries and targets are
        matched so that the sum of costs is smallest.

        Shapes: -> (N, queries), (N, queries, 4).
        Raises: DTypeError for other than dicts, IndexOutOfRangeError for a label outside
            0 … num_classes - 1.
        Source: Carion et al. 2020, arXiv:2005.12872, eq. 1 and 2.
        """
        corners = [
            {**target, "boxes": box_convert(target["boxes"], "cxcywh", "xyxy")}
            if isinstance(target, dict) and len(target.get("boxes", ()))
            else target
            for target in targets
        ]
        objects = check_targets("DETR.assign", corners, self.num_classes)
        return [self.matched(output, objects) for output in layers_of(outputs)]

    def matched(self, output: dict[str, Tensor], targets: list[Any]) -> dict[str, np.ndarray]:
        chances = softmax(output["logits"].detach(), -1).numpy()
        boxes = output["boxes"].detach()
        corners = box_convert(boxes, "cxcywh", "xyxy")
        labels = np.full(chances.shape[:2], self.num_classes)
        goals = boxes.numpy().copy()
        for i, (true, classes) in enumerate(targets):
            if not len(true):
                continue
            centred = box_convert(asarray(true), "xyxy", "cxcywh").numpy()
            apart = np.abs(goals[i][:, None] - centred).sum(axis=2)
            overlap = generalized_box_iou(corners[i], asarray(true)).numpy()
            cost = WEIGHTS["loss_bbox"] * apart - WEIGHTS["loss_giou"] * overlap
            rows, columns = assignment(cost - WEIGHTS["loss_ce"] * chances[i][:, classes])
            labels[i, rows], goals[i, rows] = classes[columns], centred[columns]
        return {"labels": labels, "boxes": goals}

    def loss(
        self, outputs: dict[str, Any], goals: list[dict[str, Any]], no_object: float = 0.1
    ) -> dict[str, Tensor]:
        """The parts of the loss by name, weighted, each summed over the layers; their sum is to be
        minimized. `goals` is of `assign`, `no_object` the weight of that class.

        Shapes: -> () each.
        Source: Carion et al. 2020, arXiv:2005.12872, eq. 3 and 4.
        """
        return set_loss(outputs, goals, no_object)

    def detect(
        self, outputs: dict[str, Any], sizes: Any, threshold: float = 0.5
    ) -> list[dict[str, np.ndarray]]:
        """Of each image, whose (height, width) is in `sizes`, "boxes" (K, 4) as corners in pixels,
        "scores" (K,) and "labels" (K,) of the queries above the threshold.

        Shapes: as above.
        Source: transformers.
        """
        chances = softmax(outputs["logits"].detach(), -1)[..., :-1].numpy()
        boxes = box_convert(outputs["boxes"].detach(), "cxcywh", "xyxy").numpy()
        results = []
        for chance, box, (height, width) in zip(chances, boxes, sizes, strict=True):
            labels, scores = chance.argmax(axis=1), chance.max(axis=1)
            stay = np.flatnonzero(scores > threshold)
            box = box[stay] * np.array([width, height, width, height], np.float32)
            results.append({"boxes": box, "scores": scores[stay], "labels": labels[stay]})
        return results


def set_loss(
    outputs: dict[str, Any], goals: list[dict[str, Any]], no_object: float = 0.1
) -> dict[str, Tensor]:
    """The parts of DETR's loss, of queries whose targets are assigned; see `DETR.loss`."""
    num_classes = outputs["logits"].shape[-1] - 1
    weight = asarray(np.array([1.0] * num_classes + [no_object], np.float32))
    total: dict[str, Any] = dict.fromkeys(WEIGHTS, 0.0)
    for output, target in zip(layers_of(outputs), goals, strict=True):
        labels, boxes = asarray(target["labels"]), asarray(target["boxes"])
        hits = (labels < num_classes).astype("float32")
        count = hits.sum().clip(1, None)
        first, second = (box_convert(b, "cxcywh", "xyxy") for b in (output["boxes"], boxes))
        apart = abs(output["boxes"] - boxes).sum(-1)
        parts = {
            "loss_ce": cross_entropy(output["logits"].transpose(1, 2), labels, weight),
            "loss_bbox": (apart * hits).sum() / count,
            "loss_giou": ((1 - complete_overlap(first, second)) * hits).sum() / count,
        }
        total = {name: total[name] + WEIGHTS[name] * part for name, part in parts.items()}
    return total


def layers_of(outputs: dict[str, Any]) -> list[dict[str, Tensor]]:
    return [outputs, *outputs.get("auxiliary", [])]


def file_names(state: dict[str, Any]) -> dict[str, Any]:
    """A state under the names of transformers' files, from those or from its modules' names."""
    changes = {
        r"^model\.backbone\.model\.": "model.backbone.conv_encoder.model.",
        r"\.o_proj\.": ".out_proj.",
        r"(layers\.\d+)\.mlp\.": r"\1.",
    }
    results = {}
    for name, value in state.items():
        for old, new in changes.items():
            name = re.sub(old, new, name)
        results[name] = value
    return results


def image_places(
    shape: tuple[int, ...], size: tuple[int, int], mask: np.ndarray | None, dim: int
) -> tuple[Tensor, np.ndarray]:
    """(sinusoids of each place's row and column, whether the image is there).

    Shapes: -> (N, S, dim), (N, S).
    """
    visible = np.ones((shape[0], *size), bool)
    if mask is not None:
        rows, columns = (np.arange(n) * shape[i] // n for i, n in ((2, size[0]), (3, size[1])))
        visible = np.asarray(mask)[:, rows[:, None], columns] != 0
    parts = []
    for axis in (1, 2):
        steps = np.cumsum(visible, axis=axis, dtype=np.float32)
        last = np.take(steps, [-1], axis=axis) + np.float32(1e-6)
        parts.append(
            sinusoids((steps / last * np.float32(2 * np.pi)).reshape(shape[0], -1), dim // 2)
        )
    return concat(parts, axis=-1), visible.reshape(shape[0], -1)
