"""Models of libraries that build on PyTorch, and those of torchvision that classify nothing, small
and with random weights: for diffusion, segmentation, video, graphs, operators, quantisation.

Each function gives a model with the keyword arguments of a call. `PACKAGES` names what has to be
installed for it; what is not installed is left out."""

import importlib.util

import torch
from torch import nn

PIXELS = 64
IMAGE = (2, 3, PIXELS, PIXELS)


# -- torchvision ---------------------------------------------------------------------------------


def fcn():
    from torchvision.models.segmentation import fcn_resnet50

    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=5, aux_loss=True)
    return model, {"x": torch.randn(IMAGE)}


def deeplab():
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    model = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return model, {"x": torch.randn(IMAGE)}


def lraspp():
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return model, {"input": torch.randn(IMAGE)}


def feature_pyramid():
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    model = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
    return model, {"x": torch.randn(IMAGE)}


def video(name: str, *shape: int):
    from torchvision.models import get_model

    return get_model(name, weights=None, num_classes=5), {"x": torch.randn(shape)}


def r3d():
    return video("r3d_18", 2, 3, 4, 32, 32)


def r2plus1d():
    return video("r2plus1d_18", 2, 3, 4, 32, 32)


def swin3d():
    return video("swin3d_t", 1, 3, 4, 64, 64)


def mvit():
    return video("mvit_v1_b", 1, 3, 16, 224, 224)


def raft():
    from torchvision.models.optical_flow import raft_small

    images = {f"image{i}": torch.randn(1, 3, 128, 128) for i in (1, 2)}
    return raft_small(weights=None), {**images, "num_flow_updates": 3}


# -- diffusers -----------------------------------------------------------------------------------


def unet():
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    return model, {"sample": torch.randn(2, 3, 16, 16), "timestep": torch.tensor([3, 7])}


def conditional_unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        norm_num_groups=8,
    )
    return model, {
        "sample": torch.randn(2, 4, 16, 16),
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }


def autoencoder():
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=8,
        sample_size=16,
    )
    return model, {"sample": torch.randn(2, 3, 16, 16)}


def diffusion_transformer():
    """It drops labels by chance while it trains, which is turned off."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        norm_num_groups=8,
    )
    for part in model.modules():
        if hasattr(part, "dropout_prob"):
            part.dropout_prob = 0.0
    return model, {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([1, 5]),
        "class_labels": torch.tensor([0, 2]),
    }


# -- text ----------------------------------------------------------------------------------------


def low_rank_bert():
    import peft
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=100,
    )
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    model = peft.get_peft_model(BertForSequenceClassification(config), lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zeros at first
            nn.init.normal_(parameter)
    words = torch.randint(0, 100, (2, 9))
    return model, {"input_ids": words, "labels": torch.tensor([0, 1])}


def decoder():
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=64,
        depth=2,
        heads=2,
        attn_dim_head=32,
        rotary_pos_emb=True,
        use_rmsnorm=True,
        ff_glu=True,
    )
    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    return model, {"x": torch.randint(0, 50, (2, 12))}


def image_encoder():
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(
        dim=32, depth=2, heads=2, attn_dim_head=16, attn_qk_norm=True, rel_pos_bias=True
    )
    model = ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=layers)
    return model, {"img": torch.randn(2, 3, 32, 32)}


# -- other fields --------------------------------------------------------------------------------


class Quantized(nn.Module):
    """A layer whose results are quantised, by a codebook that follows their means."""

    def __init__(self):
        from vector_quantize_pytorch import VectorQuantize

        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.codes = VectorQuantize(dim=16, codebook_size=20, decay=0.8)

    def forward(self, x):
        quantized, _, loss = self.codes(self.layer(x))
        return quantized, loss


def vector_quantizer():
    return Quantized(), {"x": torch.randn(2, 10, 16)}


class Flow(nn.Module):
    """The right-hand side of a differential equation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        from torchdiffeq import odeint

        return odeint(lambda t, y: self.layers(y), x, torch.linspace(0, 1, 5), method="rk4")


def differential_equation():
    return Flow(), {"x": torch.randn(3, 4)}


def fourier_operator():
    from neuralop.models import FNO

    model = FNO(n_modes=(4, 4), in_channels=2, out_channels=1, hidden_channels=8, n_layers=2)
    return model, {"x": torch.randn(2, 2, 16, 16)}


def medical_unet():
    from monai.networks.nets import UNet

    model = UNet(3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))
    return model, {"x": torch.randn(2, 1, 16, 16, 16)}


def segmentation_unet():
    import segmentation_models_pytorch

    model = segmentation_models_pytorch.Unet("resnet18", encoder_weights=None, classes=3)
    return model, {"x": torch.randn(IMAGE)}


class GraphNetwork(nn.Module):
    """A convolution and attention over the edges of a graph."""

    def __init__(self):
        from torch_geometric.nn import GATConv, GCNConv

        super().__init__()
        self.first, self.second = GCNConv(8, 16), GATConv(16, 4, heads=2)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


def graph_network():
    return GraphNetwork(), {"x": torch.randn(10, 8), "edges": torch.randint(0, 10, (2, 30))}


class Filters(nn.Module):
    """Image processing after a convolution."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        import kornia

        y = kornia.filters.gaussian_blur2d(self.layer(x), (5, 5), (1.5, 1.5))
        y = kornia.color.rgb_to_hsv(y.sigmoid())
        turned = kornia.geometry.transform.rotate(y, torch.tensor([10.0, 20.0]))
        return y, kornia.filters.sobel(y), turned


def image_processing():
    return Filters(), {"x": torch.rand(2, 3, 16, 16)}


PACKAGES = {
    **dict.fromkeys((fcn, deeplab, lraspp, feature_pyramid, r3d, r2plus1d), "torchvision"),
    **dict.fromkeys((swin3d, mvit, raft), "torchvision"),
    **dict.fromkeys((unet, conditional_unet, autoencoder, diffusion_transformer), "diffusers"),
    low_rank_bert: "peft",
    decoder: "x_transformers",
    image_encoder: "x_transformers",
    vector_quantizer: "vector_quantize_pytorch",
    differential_equation: "torchdiffeq",
    fourier_operator: "neuralop",
    medical_unet: "monai",
    segmentation_unet: "segmentation_models_pytorch",
    graph_network: "torch_geometric",
    image_processing: "kornia",
}
MODELS = {make.__name__: make for make in PACKAGES}


def names() -> list[str]:
    """The models whose packages are installed."""
    return [make.__name__ for make, package in PACKAGES.items() if is_there(package)]


def is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
