"""Networks that classify images, with torchvision's architectures and parameter names.

Images (N, 3, H, W) go in, scores (N, classes) come out. Read `resnet.py`, then `vit.py`, `vgg.py`,
`alexnet.py`."""

from glasshouse.vision.models.alexnet import AlexNet, alexnet
from glasshouse.vision.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet50
from glasshouse.vision.models.vgg import VGG, vgg16
from glasshouse.vision.models.vit import VisionTransformer, vit_b_16
