"""Detectors beside torchvision's and transformers': outputs, losses, boxes found."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.vision.boxes import box_convert
from glasshouse.vision.models import DETR, FCOS, UNet

torch = pytest.importorskip("torch")
SIZE = (96, 128)
TARGETS = [
    {
        "boxes": [[4.0, 6.0, 40.0, 50.0], [60.0, 8.0, 120.0, 90.0], [10, 10, 30, 30]],
        "labels": [1, 0, 2],
    },
    {"boxes": np.zeros((0, 4)), "labels": []},
]


def images(size=SIZE):
    return np.random.default_rng(0).normal(size=(2, 3, *size)).astype(np.float32)


def tensors(target):
    boxes = torch.tensor(np.asarray(target["boxes"], np.float32))
    return {"boxes": boxes, "labels": torch.tensor(target["labels"], dtype=torch.int64)}


def shaken(network):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.02 * (torch.rand(p.shape, generator=generator) - 0.5))
    return network.eval()


def plain_nms(boxes, scores, threshold):
    """The boxes that stay, by the definition."""
    boxes, stay = boxes.numpy(), []
    for i in np.argsort(-scores.numpy(), kind="stable").tolist():
        if not any(iou(boxes[i], boxes[j]) > threshold for j in stay):
            stay.append(i)
    return torch.tensor(stay, dtype=torch.int64)


def iou(a, b):
    sides = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None)
    area = [np.prod(x[2:] - x[:2], dtype=np.float32) for x in (a, b)]
    with np.errstate(invalid="ignore"):
        return sides[0] * sides[1] / (area[0] + area[1] - sides[0] * sides[1])


@pytest.fixture
def fcos(torchvision):
    detection = torchvision.models.detection
    body = torchvision.models.resnet18(norm_layer=torchvision.ops.FrozenBatchNorm2d)
    extra = torchvision.ops.feature_pyramid_network.LastLevelP6P7(256, 256)
    backbone = detection.backbone_utils._resnet_fpn_extractor(body, 5, [2, 3, 4], extra)
    network = shaken(detection.FCOS(backbone, 4, image_mean=[0.0] * 3, image_std=[1.0] * 3))
    ours = FCOS(4, "resnet18", frozen=True)
    ours.load_state_dict({k: v.numpy().copy() for k, v in network.state_dict().items()})
    return network, ours.eval()


def fcos_parts(network, x):
    """torchvision's outputs, anchors and counts, without its scaling of images."""
    features = list(network.backbone(x).values())
    outputs = network.head(features)
    group = type("Images", (), {"tensors": x, "image_sizes": [SIZE] * len(x)})
    anchors = network.anchor_generator(group, features)
    return outputs, anchors, [f.shape[2] * f.shape[3] for f in features]


def test_names_of_fcos_are_torchvisions(torchvision):
    with torch.device("meta"):
        make = torchvision.models.detection.fcos_resnet50_fpn
        expected = make(weights=None, weights_backbone=None, num_classes=91).state_dict()
    with gh.backends.use("stub"):
        state = FCOS(91).state_dict()
    shapes = {name: tuple(value.shape) for name, value in expected.items()}
    assert {name: value.shape for name, value in state.items()} == shapes


@pytest.mark.slow
def test_fcos_is_torchvisions(fcos, monkeypatch):
    network, ours = fcos
    x = images()
    with torch.no_grad():
        outputs, anchors, counts = fcos_parts(network, torch.tensor(x))
        boxes = network.box_coder.decode(outputs["bbox_regression"], torch.stack(anchors))
        losses = network.compute_loss([tensors(t) for t in TARGETS], outputs, anchors, counts)
    result = ours(gh.asarray(x))
    np.testing.assert_allclose(result["cls_logits"].numpy(), outputs["cls_logits"], atol=1e-4)
    np.testing.assert_allclose(result["bbox_ctrness"].numpy(), outputs["bbox_ctrness"], atol=1e-4)
    np.testing.assert_allclose(result["boxes"].numpy(), boxes, atol=1e-3)  # of 128
    own = ours.loss(result, ours.assign(TARGETS, SIZE))
    assert {k: v.item() for k, v in own.items()} == pytest.approx(
        {k: v.item() for k, v in losses.items()}, rel=1e-4
    )
    monkeypatch.setattr("torchvision.ops.boxes.nms", plain_nms)
    network.score_thresh = 0.0711
    split = {k: list(v.split(counts, dim=1)) for k, v in outputs.items()}
    anchors = [list(a.split(counts)) for a in anchors]
    expected = network.postprocess_detections(split, anchors, [SIZE] * 2)
    own = ours.detect(result, SIZE, score_thresh=0.0711)
    for one, other in zip(own, expected, strict=True):
        assert len(one["boxes"]) == len(other["boxes"]) > 3
        np.testing.assert_array_equal(one["labels"], other["labels"])
        np.testing.assert_allclose(one["boxes"], other["boxes"].detach(), atol=1e-3)
        np.testing.assert_allclose(one["scores"], other["scores"].detach(), atol=1e-4)


@pytest.fixture
def detr(torchvision, monkeypatch):
    utils = pytest.importorskip("transformers.utils")
    monkeypatch.setattr(utils.import_utils, "is_torchaudio_available", lambda: False)
    monkeypatch.setattr(utils, "is_torchaudio_available", lambda: False)
    pytest.importorskip("timm")
    from transformers import DetrConfig, DetrForObjectDetection

    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 7}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_ffn_dim": 64, f"{part}_attention_heads": 4}
    network = shaken(DetrForObjectDetection(DetrConfig(**sizes, num_labels=4, backbone="resnet18")))
    ours = DETR(4, "resnet18", dim=32, heads=4, hidden=64, layers=2, queries=7)
    ours.load_state_dict({k: v.numpy().copy() for k, v in network.state_dict().items()})
    return network, ours.eval()


def in_parts(target):
    boxes = np.asarray(target["boxes"], np.float32).reshape(-1, 4)
    boxes = boxes / np.array([SIZE[1], SIZE[0]] * 2, np.float32)
    return {**target, "boxes": box_convert(boxes, "xyxy", "cxcywh").numpy()}


@pytest.mark.slow
def test_detr_is_transformers(detr):
    network, ours = detr
    x, mask = images(), np.ones((2, *SIZE), np.int64)
    mask[1, 70:], mask[1, :, 90:] = 0, 0
    targets = [in_parts(t) for t in TARGETS]
    labels = [{"boxes": tensors(t)["boxes"], "class_labels": tensors(t)["labels"]} for t in targets]
    with torch.no_grad():
        expected = network(torch.tensor(x), torch.tensor(mask), labels=labels)
    result = ours(gh.asarray(x), mask)
    np.testing.assert_allclose(result["logits"].numpy(), expected.logits, atol=1e-4)
    np.testing.assert_allclose(result["boxes"].numpy(), expected.pred_boxes, atol=1e-4)
    own = ours.loss(result, ours.assign(result, targets))
    weights = {"loss_ce": 1, "loss_bbox": 5, "loss_giou": 2}
    assert {k: v.item() for k, v in own.items()} == pytest.approx(
        {k: w * expected.loss_dict[k].item() for k, w in weights.items()}, rel=1e-4
    )


def small_detr(**options):
    gh.random.seed(0)
    return DETR(3, "resnet18", dim=16, heads=2, hidden=32, queries=6, width=4, **options)


def test_detr_takes_the_names_of_files_and_of_modules():
    network = small_detr(layers=1)
    state = network.state_dict()
    assert "model.backbone.conv_encoder.model.layer1.0.bn1.running_var" in state
    assert "model.decoder.layers.0.encoder_attn.out_proj.weight" in state
    changes = (".conv_encoder.model.", ".model."), (".out_proj.", ".o_proj."), (".fc", ".mlp.fc")
    modules = {}
    for name, value in state.items():
        for old, new in changes:
            name = name.replace(old, new)
        modules[name] = value
    assert modules.keys() != state.keys()
    network.load_state_dict(modules)


@pytest.mark.slow
def test_detr_learns_two_images():
    network = small_detr(layers=2, dropout=0.0, frozen=False)
    x = gh.asarray(images((64, 64)))
    targets = [in_parts(TARGETS[0]), {"boxes": [[0.5, 0.5, 0.2, 0.3]], "labels": [2]}]
    optimizer = gh.optim.AdamW(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(30):
        outputs = network(x)
        assert len(outputs["auxiliary"]) == 1
        parts = network.loss(outputs, network.assign(outputs, targets))
        loss = sum(parts.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    result = network.eval()
    boxes = result.detect(result(x), [(64, 64)] * 2, threshold=0.0)
    assert [f["boxes"].shape for f in boxes] == [(6, 4)] * 2


@pytest.mark.slow
def test_fcos_learns_an_image():
    gh.random.seed(0)
    network = FCOS(3, "resnet18", channels=16, depth=1, width=8)
    x, size = gh.asarray(images((64, 64))), (64, 64)
    targets = [
        {"boxes": [[4, 4, 30, 40]], "labels": [1]},
        {"boxes": [[30, 20, 60, 60]], "labels": [2]},
    ]
    assigned = network.assign(targets, size)
    assert (assigned["labels"][0] == 1).any() and set(assigned["labels"][1]) == {-1, 2}
    optimizer = gh.optim.AdamW(network.parameters(), lr=5e-3)
    for _ in range(40):
        loss = sum(network.loss(network(x), assigned).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    result = network.detect(network(x), size, score_thresh=0.05)
    metric = gh.metrics.MeanAveragePrecision([0.5])
    metric.update(result, targets)
    assert metric.value()["map"] > 0.9


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (
            {"boxes": [[0, 0, 5, 5]], "labels": [4]},
            IndexOutOfRangeError,
            "0 to 3; got 4 in image 1",
        ),
        ({"boxes": [[0, 0, 5, 0]], "labels": [1]}, OptionError, "an area; got .* in image 1"),
        ({"boxes": [[0, 0, 5, 5]], "labels": []}, ShapeError, "in image 1"),
        ({"boxes": [[0, 0, 5, 5]]}, TypeError, "labels"),
    ],
)
def test_bad_targets_are_named(target, error, message):
    network = FCOS(4, "resnet18", channels=8, depth=1, width=4)
    with pytest.raises(error, match=message):
        network.assign([TARGETS[0], target], SIZE)


@pytest.mark.slow
def test_unet_learns_to_find_what_is_bright():
    gh.random.seed(0)
    network = UNet(2, width=4, depth=2)
    x = gh.random.normal((2, 3, 20, 22))
    y = (x.mean(1) > 0).astype("int64")
    optimizer = gh.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(30):
        loss = gh.nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert network(x).shape == (2, 2, 20, 22)
    assert ((network(x).argmax(1) == y).numpy()).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["detr", "fcos"])
def test_a_captured_step_has_the_losses_of_the_plain_one(kind):
    """Queries are matched in each call, and not once for all."""
    targets = [in_parts(TARGETS[0]), {"boxes": [[0.5, 0.5, 0.2, 0.3]], "labels": [2]}]

    def losses(is_captured):
        gh.random.seed(0)
        if kind == "detr":
            network = small_detr(layers=2, dropout=0.0, frozen=False).double()
        else:
            network = FCOS(3, "resnet18", channels=8, depth=1, width=4).double()
            goals = network.assign(TARGETS, (64, 64))
        optimizer = gh.optim.SGD(network.parameters(), lr=1e-3)

        def step(x):
            outputs = network(x)
            matches = network.assign(outputs, targets) if kind == "detr" else goals
            loss = sum(network.loss(outputs, matches).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = gh.optimize(step) if is_captured else step
        rng = np.random.default_rng(0)
        return [run(gh.asarray(rng.normal(size=(2, 3, 64, 64)))).item() for _ in range(5)]

    assert losses(True) == pytest.approx(losses(False), rel=1e-4)
