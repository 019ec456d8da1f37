"""Model classes of packages in tiny configurations with random weights, for ``bench/capture.py``.

It needs transformers, timm, diffusers and torch-geometric beside torch. Each function makes one model; ``INPUTS`` has
its inputs as a case writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torchvision_stub

IDS = {"shape": [2, 16], "dtype": "int64", "init": {"randint": [2, 100]}}
MASK = {"shape": [2, 16], "dtype": "int64", "init": "ones"}
IMAGE = [2, 3, 32, 32]
NODES = [12, 16]
EDGES = {"shape": [2, 30], "dtype": "int64", "init": {"randint": [0, 12]}}
TEXT = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64}  # fmt: skip
CAUSAL = {**TEXT, "num_key_value_heads": 2, "use_cache": False}

MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Mapping[str, Any]]] = {}
"""By name what makes each model, and its inputs."""


def _hugging(name: str, model: str, config: str, inputs: Mapping[str, Any], **options: Any) -> None:
    """Add a model of transformers, made of its configuration."""

    def make() -> torch.nn.Module:
        import transformers

        settings = getattr(transformers, config)(**{"return_dict": False, **options})
        return getattr(transformers, model)(settings).eval()

    MODELS[name] = make, inputs


def _timm(name: str, model: str, shape: list[int], **options: Any) -> None:
    """Add a model of timm."""

    def make() -> torch.nn.Module:
        with torchvision_stub.installed():
            import timm

        return timm.create_model(model, pretrained=False, num_classes=10, **options).eval()

    MODELS[name] = make, {"x": shape}


_hugging("bert", "BertModel", "BertConfig", {"input_ids": IDS, "attention_mask": MASK}, **TEXT)
_hugging("distilbert", "DistilBertModel", "DistilBertConfig", {"input_ids": IDS, "attention_mask": MASK},
         vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64)  # fmt: skip
_hugging("roberta", "RobertaModel", "RobertaConfig", {"input_ids": IDS, "attention_mask": MASK}, **TEXT)
_hugging("albert", "AlbertModel", "AlbertConfig", {"input_ids": IDS, "attention_mask": MASK}, **TEXT, embedding_size=16)
_hugging("electra", "ElectraModel", "ElectraConfig", {"input_ids": IDS, "attention_mask": MASK}, **TEXT,
         embedding_size=16)  # fmt: skip
_hugging("deberta", "DebertaV2Model", "DebertaV2Config", {"input_ids": IDS, "attention_mask": MASK}, **TEXT,
         relative_attention=True, pos_att_type=["p2c", "c2p"])  # fmt: skip
_hugging("gpt2", "GPT2Model", "GPT2Config", {"input_ids": IDS}, vocab_size=100, n_embd=32, n_layer=2, n_head=4,
         n_positions=64, use_cache=False)  # fmt: skip
for _name, _class in (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3"),
                      ("gemma2", "Gemma2"), ("phi3", "Phi3")):  # fmt: skip
    _extra: dict[str, Any] = {"pad_token_id": 0, "head_dim": 8} if _name != "phi3" else {"pad_token_id": 0}
    _hugging(_name, f"{_class}Model", f"{_class}Config", {"input_ids": IDS}, **CAUSAL, **_extra)
_hugging("mixtral", "MixtralModel", "MixtralConfig", {"input_ids": IDS}, **CAUSAL, num_local_experts=4)
_hugging("mamba", "MambaModel", "MambaConfig", {"input_ids": IDS}, vocab_size=100, hidden_size=32, num_hidden_layers=2,
         state_size=8, use_cache=False)  # fmt: skip
_hugging("t5", "T5Model", "T5Config", {"input_ids": IDS, "decoder_input_ids": IDS}, vocab_size=100, d_model=32, d_kv=8,
         d_ff=64, num_layers=2, num_heads=4, use_cache=False, return_dict=True)  # fmt: skip
_hugging("bart", "BartModel", "BartConfig", {"input_ids": IDS, "decoder_input_ids": IDS}, vocab_size=100, d_model=32,
         encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
         decoder_ffn_dim=64, max_position_embeddings=64, use_cache=False, return_dict=True)  # fmt: skip
_hugging("vit", "ViTModel", "ViTConfig", {"pixel_values": IMAGE}, hidden_size=32, num_hidden_layers=2,
         num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)  # fmt: skip
_hugging("dinov2", "Dinov2Model", "Dinov2Config", {"pixel_values": IMAGE}, hidden_size=32, num_hidden_layers=2,
         num_attention_heads=4, image_size=32, patch_size=8, return_dict=True)  # fmt: skip
_hugging("segformer", "SegformerModel", "SegformerConfig", {"pixel_values": IMAGE}, hidden_sizes=[8, 16, 24, 32],
         depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16)  # fmt: skip
_hugging("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", {"input_values": [2, 800]}, **TEXT, conv_dim=[16, 16],
         conv_stride=[5, 4], conv_kernel=[10, 8], num_feat_extract_layers=2, num_conv_pos_embeddings=16,
         num_conv_pos_embedding_groups=2)  # fmt: skip


def _whisper() -> torch.nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
                           num_mel_bins=8, max_source_positions=20, return_dict=False)  # fmt: skip
    return WhisperEncoder(config).eval()


def _clip() -> torch.nn.Module:
    from transformers import CLIPConfig, CLIPModel

    text = {**TEXT, "eos_token_id": 1}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
              "image_size": 32, "patch_size": 8}  # fmt: skip
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)).eval()


MODELS["whisper_encoder"] = _whisper, {"input_features": [2, 8, 40]}
MODELS["clip"] = _clip, {"input_ids": IDS, "pixel_values": IMAGE}

_timm("resnet", "resnet18", [2, 3, 64, 64])
_timm("convnext", "convnext_atto", [2, 3, 64, 64], depths=(1, 1, 1, 1), dims=(8, 16, 24, 32))
_timm("efficientnet", "efficientnet_b0", [2, 3, 64, 64])
_timm("mobilenet", "mobilenetv3_small_050", [2, 3, 64, 64])
_timm("swin", "swin_tiny_patch4_window7_224", [2, 3, 56, 56], img_size=56, embed_dim=24, depths=(1, 1),
      num_heads=(2, 4))  # fmt: skip
_timm("mixer", "mixer_s32_224", [2, 3, 64, 64], img_size=64)
_timm("deit", "deit_tiny_patch16_224", IMAGE, img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)
_timm("densenet", "densenet121", [2, 3, 64, 64], growth_rate=4, block_config=(1, 1, 1, 1))


class _Graph(torch.nn.Module):
    """Two layers of torch-geometric."""

    def __init__(self, layer: str, **options: Any) -> None:
        super().__init__()
        from torch_geometric import nn

        self.first = getattr(nn, layer)(16, 8, **options)
        self.second = getattr(nn, layer)(8, 4, **options)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


for _name, _class in (("gcn", "GCNConv"), ("gat", "GATConv"), ("sage", "SAGEConv"), ("graphconv", "GraphConv")):
    MODELS[_name] = (lambda layer: lambda: _Graph(layer).eval())(_class), {"x": NODES, "edge_index": EDGES}


def _unet() -> torch.nn.Module:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4, attention_head_dim=4,
    ).eval()  # fmt: skip


def _dit() -> torch.nn.Module:
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4,
    ).eval()  # fmt: skip


class _Vae(torch.nn.Module):
    """An autoencoder of diffusers, from image to image."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import AutoencoderKL

        self.model = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(8, 16), latent_channels=4, norm_num_groups=4, sample_size=16,
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.decode(self.model.encode(x).latent_dist.mean, return_dict=False)[0]


MODELS["unet2d"] = _unet, {"sample": [2, 3, 16, 16], "timestep": {"values": [3, 5], "dtype": "int64"}}
MODELS["dit"] = (
    _dit,
    {
        "hidden_states": [2, 4, 8, 8],
        "timestep": {"values": [3, 5], "dtype": "int64"},
        "class_labels": {"values": [1, 7], "dtype": "int64"},
    },
)
MODELS["vae"] = lambda: _Vae().eval(), {"x": [2, 3, 16, 16]}


def tensor(made: Any) -> torch.Tensor:
    """Return an input as a tensor."""
    data = {"shape": made} if isinstance(made, list) else made
    if "values" in data:
        return torch.tensor(data["values"])
    if data.get("dtype") == "int64":
        low, high = (1, 2) if data["init"] == "ones" else data["init"]["randint"]
        return torch.randint(low, high, tuple(data["shape"]))
    return torch.randn(data["shape"])


def __getattr__(name: str) -> Any:
    """Return for ``bert`` what makes the model, and for ``make_bert`` what makes it with its inputs."""
    if name in MODELS:
        return MODELS[name][0]
    if name.removeprefix("make_") in MODELS:
        make, inputs = MODELS[name.removeprefix("make_")]
        return lambda: (make(), (), {key: tensor(value) for key, value in inputs.items()})
    raise AttributeError(name)
