"""Networks that see, with the architectures and parameter names of torchvision and timm.

Images (N, 3, H, W) go in, scores (N, classes) come out; of U-Net scores of each pixel, of FCOS and
DETR boxes. Read `resnet.py`, then `inverted.py`, `convnext.py`, `vit.py`, `swin.py`, `unet.py`,
`fcos.py`, `detr.py`; `vgg.py` and `alexnet.py` are older."""

from glasshouse.vision.models.alexnet import AlexNet, alexnet
from glasshouse.vision.models.convnext import (
    ConvNeXt,
    convnext_base,
    convnext_large,
    convnext_small,
    convnext_tiny,
)
from glasshouse.vision.models.detr import DETR
from glasshouse.vision.models.fcos import FCOS, FeaturePyramid
from glasshouse.vision.models.inverted import (
    EfficientNet,
    MobileNetV2,
    MobileNetV3,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
    mobilenet_v2,
    mobilenet_v3_large,
    mobilenet_v3_small,
)
from glasshouse.vision.models.resnet import (
    BasicBlock,
    Bottleneck,
    FrozenBatchNorm2d,
    ResNet,
    ResNetBody,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from glasshouse.vision.models.swin import (
    DeiT,
    SwinTransformer,
    deit_base_patch16_224,
    deit_small_patch16_224,
    deit_tiny_patch16_224,
    swin_b,
    swin_s,
    swin_t,
)
from glasshouse.vision.models.unet import UNet
from glasshouse.vision.models.vgg import VGG, vgg16
from glasshouse.vision.models.vit import (
    VisionTransformer,
    vit_b_16,
    vit_b_32,
    vit_h_14,
    vit_l_16,
    vit_l_32,
)
