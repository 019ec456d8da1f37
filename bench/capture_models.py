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
MASKED = {"input_ids": IDS, "attention_mask": MASK}
DECODED = {"input_ids": IDS, "decoder_input_ids": IDS}
TIMES = {"values": [3, 5], "dtype": "int64"}
NODES = [12, 16]
EDGES = {"shape": [2, 30], "dtype": "int64", "init": {"randint": [0, 12]}}
TEXT = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64}  # fmt: skip
CAUSAL = {**TEXT, "num_key_value_heads": 2, "use_cache": False}

Entry = tuple[Callable[[], torch.nn.Module], Mapping[str, Any]]
"""What makes a model, and its inputs."""


def _hugging(model: str, inputs: Mapping[str, Any], **options: Any) -> Entry:
    """Return a model of transformers, made of its configuration."""

    def make() -> torch.nn.Module:
        import transformers

        config = getattr(transformers, model.replace("Model", "Config"))(**{"return_dict": False, **options})
        return getattr(transformers, model)(config).eval()

    return make, inputs


def _timm(model: str, shape: list[int], **options: Any) -> Entry:
    """Return a model of timm."""

    def make() -> torch.nn.Module:
        with torchvision_stub.installed():
            import timm

        return timm.create_model(model, pretrained=False, num_classes=10, **options).eval()

    return make, {"x": shape}


def _causal(model: str, **options: Any) -> Entry:
    """Return a language model of transformers."""
    return _hugging(model, {"input_ids": IDS}, **CAUSAL, **options)


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


class _Graph(torch.nn.Module):
    """Two layers of torch-geometric."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        from torch_geometric import nn

        self.first, self.second = getattr(nn, layer)(16, 8), getattr(nn, layer)(8, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


def _geometric(layer: str) -> Entry:
    """Return a model of torch-geometric."""
    return lambda: _Graph(layer).eval(), {"x": NODES, "edge_index": EDGES}


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


MODELS: dict[str, Entry] = {
    "bert": _hugging("BertModel", MASKED, **TEXT),
    "distilbert": _hugging("DistilBertModel", MASKED, vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
                           max_position_embeddings=64),
    "roberta": _hugging("RobertaModel", MASKED, **TEXT),
    "albert": _hugging("AlbertModel", MASKED, **TEXT, embedding_size=16),
    "electra": _hugging("ElectraModel", MASKED, **TEXT, embedding_size=16),
    "deberta": _hugging("DebertaV2Model", MASKED, **TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "gpt2": _hugging("GPT2Model", {"input_ids": IDS}, vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                     use_cache=False),
    "llama": _causal("LlamaModel", pad_token_id=0, head_dim=8),
    "mistral": _causal("MistralModel", pad_token_id=0, head_dim=8),
    "qwen2": _causal("Qwen2Model", pad_token_id=0, head_dim=8),
    "qwen3": _causal("Qwen3Model", pad_token_id=0, head_dim=8),
    "gemma2": _causal("Gemma2Model", pad_token_id=0, head_dim=8),
    "phi3": _causal("Phi3Model", pad_token_id=0),
    "mixtral": _causal("MixtralModel", num_local_experts=4),
    "mamba": _hugging("MambaModel", {"input_ids": IDS}, vocab_size=100, hidden_size=32, num_hidden_layers=2,
                      state_size=8, use_cache=False),
    "t5": _hugging("T5Model", DECODED, vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                   use_cache=False, return_dict=True),
    "bart": _hugging("BartModel", DECODED, vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2,
                     encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                     max_position_embeddings=64, use_cache=False, return_dict=True),
    "vit": _hugging("ViTModel", {"pixel_values": IMAGE}, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                    intermediate_size=64, image_size=32, patch_size=8),
    "dinov2": _hugging("Dinov2Model", {"pixel_values": IMAGE}, hidden_size=32, num_hidden_layers=2,
                       num_attention_heads=4, image_size=32, patch_size=8, return_dict=True),
    "segformer": _hugging("SegformerModel", {"pixel_values": IMAGE}, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                          num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16),
    "wav2vec2": _hugging("Wav2Vec2Model", {"input_values": [2, 800]}, **TEXT, conv_dim=[16, 16], conv_stride=[5, 4],
                         conv_kernel=[10, 8], num_feat_extract_layers=2, num_conv_pos_embeddings=16,
                         num_conv_pos_embedding_groups=2),
    "whisper_encoder": (_whisper, {"input_features": [2, 8, 40]}),
    "clip": (_clip, {"input_ids": IDS, "pixel_values": IMAGE}),
    "resnet": _timm("resnet18", [2, 3, 64, 64]),
    "convnext": _timm("convnext_atto", [2, 3, 64, 64], depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    "efficientnet": _timm("efficientnet_b0", [2, 3, 64, 64]),
    "mobilenet": _timm("mobilenetv3_small_050", [2, 3, 64, 64]),
    "swin": _timm("swin_tiny_patch4_window7_224", [2, 3, 56, 56], img_size=56, embed_dim=24, depths=(1, 1),
                  num_heads=(2, 4)),
    "mixer": _timm("mixer_s32_224", [2, 3, 64, 64], img_size=64),
    "deit": _timm("deit_tiny_patch16_224", IMAGE, img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3),
    "densenet": _timm("densenet121", [2, 3, 64, 64], growth_rate=4, block_config=(1, 1, 1, 1)),
    "gcn": _geometric("GCNConv"),
    "gat": _geometric("GATConv"),
    "sage": _geometric("SAGEConv"),
    "graphconv": _geometric("GraphConv"),
    "unet2d": (_unet, {"sample": [2, 3, 16, 16], "timestep": TIMES}),
    "dit": (_dit, {"hidden_states": [2, 4, 8, 8], "timestep": TIMES,
                   "class_labels": {"values": [1, 7], "dtype": "int64"}}),
    "vae": (lambda: _Vae().eval(), {"x": [2, 3, 16, 16]}),
}  # fmt: skip
"""By name what makes each model, and its inputs."""


def tensor(description: Any) -> torch.Tensor:
    """Return an input as a tensor."""
    data = {"shape": description} if isinstance(description, list) else description
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
