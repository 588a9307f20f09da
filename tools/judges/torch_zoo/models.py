"""Small forms of models that others wrote: torchvision's, timm's and transformers', and a few of
further libraries ("others"), with random weights.

`names(library)` lists them; `build(library, name)` gives a model with its inputs, dropout and drop
path off. transformers is installed as it is, torchvision and timm without their dependencies: they
run with a CPU build of PyTorch once torchvision's operators are defined, empty."""

import importlib.util
import inspect
import re

import torch

from glasshouse.bench.torch_cases import prepare_torchvision
from torch_zoo import others

LIBRARIES = ("torchvision", "timm", "transformers", "others")
PIXELS = 96
BATCH = 2
TOKENS = 16
WORDS = 128  # in the vocabulary

CAUSAL = """arcee bitnet biogpt bloom codegen cohere cohere2 ctrl diffllama exaone4 gemma
gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe helium
llama mamba mamba2 mistral mixtral mpt olmo olmo2 olmoe openai-gpt opt persimmon phi phi3
qwen2 qwen3 qwen3_moe rwkv smollm3 stablelm starcoder2 xglm""".split()
MASKED = """albert bert camembert convbert deberta deberta-v2 distilbert electra fnet
layoutlm megatron-bert mobilebert modernbert mpnet nystromformer rembert roberta roformer
squeezebert xlm xlm-roberta""".split()
TRANSLATION = (
    "bart blenderbot m2m_100 marian mbart mt5 pegasus plbart switch_transformers t5".split()
)
IMAGES = """beit convnext convnextv2 cvt deit dinov2 levit mobilenet_v2 mobilevit poolformer pvt
regnet resnet segformer swin swinv2 vit vit_msn""".split()
SOUNDS = "audio-spectrogram-transformer hubert unispeech wav2vec2 wavlm".split()
TASKS = {
    "CAUSAL_LM": CAUSAL,
    "MASKED_LM": MASKED,
    "SEQ_TO_SEQ_CAUSAL_LM": TRANSLATION,
    "IMAGE_CLASSIFICATION": IMAGES,
    "AUDIO_CLASSIFICATION": SOUNDS,
}

# The smallest model of each family (names that begin with the same letters) of timm 1.0.31.
TIMM = """bat_resnext26ts beit3_base_patch16_224 beit_base_patch16_224 beitv2_base_patch16_224
botnet26t_256 botnet50ts_256 caformer_s18 cait_xxs24_224 coat_tiny coatnet_pico_rw_224
coatnext_nano_rw_224 convformer_s18 convit_tiny convmixer_768_32 convnext_zepto_rms
convnextv2_atto cpubone_nano crossvit_tiny_240 cs3darknet_focus_s cs3edgenet_x cs3se_edgenet_x
cs3sedarknet_xdw csatv2 cspdarknet53 cspnext_tiny cspresnet50 cspresnext50 darknet17 darknet21
darknet53 darknetaa53 davit_tiny deit3_small_patch16_224 deit_tiny_patch16_224 densenet121
densenet201 densenetblur121d dla102x dla34 dla46x_c dla60x_c dm_nfnet_f0 dpn131 dpn48b dpn68
dpn92 eca_resnext26ts ecaresnet101d_pruned ecaresnet26t ecaresnet50d_pruned ecaresnetlight
ecaresnext26t_32x4d ecaresnext50t_32x4d edgenext_xx_small efficientformer_l1
efficientformerv2_s0 efficientnet_lite0 efficientnetv2_rw_t efficientvim_m1 efficientvit_m0
ese_vovnet19b_slim_dw eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 fbnetc_100 fbnetv3_b
flexivit_small focalnet_tiny_srf gc_efficientnetv2_rw_t gcresnet33ts gcresnet50t gcresnext26ts
gcresnext50ts gcvit_xxtiny gernet_s ghostnet_050 ghostnetv2_100 ghostnetv3_050 gmixer_12_224
gmlp_ti16_224 halo2botnet50ts_256 halonet26t halonet50ts halonet_h1 haloregnetz_b hardcorenas_b
hgnet_tiny hgnetv2_b0 hiera_tiny_224 hieradet_small hrnet_w18_small iformer_t
inception_next_atto lambda_resnet26t lamhalobotnet50ts_256 lcnet_035 lcnetv2_small
legacy_senet154 legacy_seresnet18 legacy_seresnet34 legacy_seresnet50 legacy_seresnext101_32x4d
legacy_seresnext26_32x4d legacy_seresnext50_32x4d legacy_xception levit_128s lowformer_b0
mambaout_femto maxvit_pico_rw_256 maxxvit_rmlp_nano_rw_256 maxxvitv2_nano_rw_256 mixer_s16_224
mixnet_s mnasnet_small mobilenet_edgetpu_100 mobilenetv1_100 mobilenetv2_035
mobilenetv3_small_050 mobilenetv4_conv_small_035 mobilenetv5_base mobileone_s1 mobilevit_xxs
mobilevitv2_050 mvitv2_tiny naflexvit_base_patch16_parfac_gap nasnetalarge nest_tiny
nextvit_small nf_regnet_b0 nfnet_l0 pit_ti_224 pnasnet5large poolformer_s12 poolformerv2_s12
pvt_v2_b0 qwen3_vit_88m rdnet_tiny regnetv_040 regnetx_002 regnety_002 regnetz_005
repghostnet_050 repvgg_a0 repvit_m1 res2net50_14w_8s res2next50 resmlp_12_224 resnest14d
resnest26d resnest50d_1s4x24d resnet10t resnet26 resnet32ts resnet50_clip_gap resnet61q
resnetaa101d resnetaa34d resnetaa50 resnetblur18 resnetblur50 resnetrs101 resnetrs200 resnetrs50
resnetv2_18 resnext101_32x4d resnext26ts resnext50_32x4d rexnet_100 rexnetr_100 sam2_hiera_tiny
samvit_base_patch16_224 sebotnet33ts_256 sedarknet21 sehalonet33ts selecsls42 selecsls60
selecsls84 semnasnet_050 senet154 sequencer2d_s seresnet18 seresnet200d seresnet33ts seresnet50
seresnetaa50d seresnext101_32x4d seresnext26ts seresnext50_32x4d seresnextaa101d_32x8d shvit_s1
skresnet18 skresnet34 skresnet50 skresnext50_32x4d spnasnet_100 starnet_s050 swiftformer_xs
swin_tiny_patch4_window7_224 swinv2_cr_tiny_224 tf_efficientnet_lite0 tf_efficientnetv2_b0
tf_mixnet_s tf_mobilenetv3_small_075 tiny_vit_5m_224 tinynet_e tnt_s_legacy_patch16_224
tresnet_m twins_svt_small vgg11 visformer_tiny vit_tiny_patch16_dinov3_qkvb vitamin_small_224
volo_d1_224 vovnet39a vovnet57a wide_resnet50_2 xception41p xception65p xception71
xcit_nano_12_p8_224""".split()

# What makes a configuration of transformers small, under the names that its classes use.
SMALL = {
    64: "hidden_size d_model n_embd embed_dim dim embedding_size emb_dim hidden_dim n_embed",
    128: """intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner d_inner dff
        ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size""",
    2: """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers
        num_decoder_layers num_encoder_layers num_key_value_heads num_experts_per_tok""",
    4: """num_attention_heads n_head n_heads num_heads encoder_attention_heads attention_heads
        decoder_attention_heads num_local_experts num_experts n_routed_experts""",
    16: "head_dim d_kv rotary_dim attention_head_size",
    WORDS: "vocab_size max_position_embeddings n_positions max_seq_len",
}
OFF = re.compile(
    r"dropout|drop_rate|drop_prob|_pdrop|layerdrop|drop_path|drop_path_rate|hidden_drop"
    r"|mask_time_prob|mask_feature_prob"
)


def installed(library: str) -> bool:
    """Whether a library can be imported here."""
    if library == "others":
        return bool(others.names())
    return importlib.util.find_spec(library) is not None


prepare_torchvision()  # before what imports it


# -- names ---------------------------------------------------------------------------------------


def names(library: str) -> list[str]:
    """The models of a library that are tried."""
    if library == "timm":
        return TIMM
    if library == "others":
        return others.names()
    return torchvision_names() if library == "torchvision" else transformers_names()


def torchvision_names() -> list[str]:
    """All its models for classification."""
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)


def transformers_names() -> list[str]:
    """Architectures by name, of five tasks."""
    return sorted({name for group in TASKS.values() for name in group})


# -- models and inputs ---------------------------------------------------------------------------


def build(library: str, name: str) -> tuple[torch.nn.Module, dict]:
    """A model in training mode and the keyword arguments of a call; the same ones for each call."""
    torch.manual_seed(0)
    if library == "others":
        model, inputs = others.MODELS[name]()
    else:
        makers = {"torchvision": build_torchvision, "timm": build_timm}
        model, inputs = makers.get(library, build_transformers)(name)
    return without_chance(model.train()), inputs


CHANCES = "p drop_prob drop_path drop_rate proj_drop_rate dropout layerdrop attn_dropout".split()


def without_chance(model: torch.nn.Module) -> torch.nn.Module:
    """The model with every probability of dropping something at 0."""
    for part in model.modules():
        for attribute in CHANCES:
            if isinstance(getattr(part, attribute, None), float):
                setattr(part, attribute, 0.0)
    return model


def build_torchvision(name: str):
    import torchvision

    pixels = {"inception_v3": 299, "googlenet": PIXELS}.get(name, PIXELS)
    options = {"weights": None, "num_classes": 10}
    if name.startswith("vit_"):
        options["image_size"] = pixels = 112 if name == "vit_h_14" else PIXELS
    if name == "maxvit_t":
        pixels = 224
    if name in ("inception_v3", "googlenet"):
        options["init_weights"] = False
    model = torchvision.models.get_model(name, **options)
    return model, {"x": torch.randn(BATCH, 3, pixels, pixels)}


def build_timm(name: str):
    import timm

    for options in ({"img_size": PIXELS}, {}):
        try:
            model = timm.create_model(name, pretrained=False, num_classes=10, **options)
        except TypeError:
            continue
        except Exception:
            if not options:
                raise
            continue
        pixels = (PIXELS, model.default_cfg["input_size"][-1])
        for size in pixels if not options else pixels[:1]:
            parameter = next(iter(inspect.signature(model.forward).parameters))
            inputs = {parameter: torch.randn(BATCH, 3, size, size)}
            if runs(model, inputs):
                return model, inputs
    raise ValueError(f"{name}: no size of image runs")


def runs(model: torch.nn.Module, inputs: dict) -> bool:
    """Whether eager computes the model for these inputs."""
    try:
        with torch.no_grad():
            model.eval()(**inputs)
        return True
    except (RuntimeError, AssertionError, ValueError):
        return False


def small_config(name: str):
    """A configuration of transformers at 2 layers, 64 wide, with no dropout."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[name]()
    options = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if hasattr(config, "decoder_start_token_id"):
        options["decoder_start_token_id"] = 1
    for value, keys in SMALL.items():
        for key in keys.split():
            if isinstance(getattr(config, key, None), int):
                options[key] = value
    for key, value in config.to_dict().items():
        if OFF.search(key) and isinstance(value, float):
            options[key] = 0.0
    if isinstance(getattr(config, "image_size", None), int):
        options["image_size"] = PIXELS
    if isinstance(getattr(config, "depths", None), (list, tuple)):
        options["depths"] = [1] * len(config.depths)
        options.pop("num_hidden_layers", None)
    options |= SPECIAL.get(name, {})
    return CONFIG_MAPPING[name](**options)


CONVNEXT = {"hidden_sizes": [32, 48, 64, 96], "depths": [1, 1, 2, 1], "num_channels": 3}
SPECIAL: dict[str, dict] = {
    "convnext": CONVNEXT,
    "convnextv2": CONVNEXT,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "bitnet": {"num_key_value_heads": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "expand": 2},
    "swin": {
        "num_heads": [2, 4, 8, 16],
        "embed_dim": 32,
        "depths": [2, 2, 1, 1],
        "window_size": 3,
    },
    "swinv2": {"num_heads": [2, 4, 8, 16], "embed_dim": 32, "depths": [2, 2, 1, 1]},
}


def build_transformers(name: str):
    import transformers
    from transformers.models.auto import modeling_auto

    task = next(task for task, group in TASKS.items() if name in group)
    mapping = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
    heads = mapping[name]
    cls = getattr(transformers, heads if isinstance(heads, str) else heads[0])
    config = small_config(name)
    model = cls(config)
    words = torch.randint(3, WORDS, (BATCH, TOKENS))
    if task == "IMAGE_CLASSIFICATION":
        return model, {"pixel_values": torch.randn(BATCH, 3, PIXELS, PIXELS)}
    if name == "audio-spectrogram-transformer":
        shape = (BATCH, config.max_length, config.num_mel_bins)
        return model, {"input_values": torch.randn(shape)}
    if task == "AUDIO_CLASSIFICATION":
        return model, {"input_values": torch.randn(BATCH, 4000)}
    if task == "SEQ_TO_SEQ_CAUSAL_LM":
        return model, {"input_ids": words, "decoder_input_ids": words.flip(0)}
    return model, {"input_ids": words}
