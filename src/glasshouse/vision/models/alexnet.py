"""AlexNet, in the form for one device."""

from glasshouse import nn


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; `width` scales all of them (64 is AlexNet's).
    Shapes: images (N, 3, H, W), H and W at least 63 -> scores (N, num_classes).
    Source: Krizhevsky 2014, arXiv:1404.5997; names as in torchvision.
    Example: >>> AlexNet(10, width=4)(gh.zeros((1, 3, 64, 64))).shape
             (1, 10)"""

    def __init__(self, num_classes=1000, dropout=0.5, width=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(nn.Dropout(dropout),
                                        nn.Linear(4 * width * 6 * 6, 64 * width), nn.ReLU(),
                                        nn.Dropout(dropout), nn.Linear(64 * width, 64 * width),
                                        nn.ReLU(), nn.Linear(64 * width, num_classes))  # fmt: skip

    def forward(self, images):
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def alexnet(num_classes=1000, **options) -> AlexNet:
    """AlexNet: 61,100,840 parameters for 1,000 classes, for images of 224 × 224."""
    return AlexNet(num_classes, **options)
