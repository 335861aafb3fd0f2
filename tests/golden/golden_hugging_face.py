"""Tiny checkpoints as transformers writes them, their logits and ten fine-tuning losses; see README.md."""

import math
import pathlib
import shutil
import sys

import numpy
import safetensors.torch
import torch
import torch.nn.functional as F
import transformers

from golden_file import GoldenFile, generator, integers, normal

GPT2 = {"vocab_size": 29, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 0}
LLAMA = {"vocab_size": 29, "hidden_size": 18, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 32}
BERT = {"vocab_size": 29, "hidden_size": 24, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 6}
ENCODERS, MASK, CHOSEN = ("bert", "modernbert"), 28, 0.3  # the mask token, and the share of tokens to predict
EQUAL = {**{key: value for key, value in LLAMA.items() if key not in ("head_dim", "num_key_value_heads")},
         "hidden_size": 24}  # heads whose width follows from the states'
CASES = {  # name: configuration, type of the stored weights, most bytes of a file
    "gpt2": (transformers.GPT2Config(**GPT2), torch.float32, None),
    "gpt2_half": (transformers.GPT2Config(**GPT2, n_inner=19, activation_function="gelu", layer_norm_epsilon=1e-3,
                                          tie_word_embeddings=False, attn_pdrop=0.25, resid_pdrop=0.125,
                                          embd_pdrop=0.5), torch.float16, None),
    "llama": (transformers.LlamaConfig(**LLAMA, rms_norm_eps=1e-5,
                                       rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0,
                                                        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                        "original_max_position_embeddings": 16}),
              torch.float32, "8KB"),
    "llama_bfloat": (transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 1}, attention_bias=True, mlp_bias=True,
                                              hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True,
                                              rope_parameters={"rope_type": "linear", "rope_theta": 100.0,
                                                               "factor": 2.5}), torch.bfloat16, None),
    "llama_equal_heads": (transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 6, "head_dim": 2,
                                                      "num_hidden_layers": 1}), torch.float32, None),
    "llama_yarn": (transformers.LlamaConfig(**{**LLAMA, "head_dim": 12}, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0, "original_max_position_embeddings": 16}),
        torch.float32, None),
    "mistral": (transformers.MistralConfig(**LLAMA, sliding_window=4), torch.float32, None),
    "mixtral": (transformers.MixtralConfig(**{**LLAMA, "intermediate_size": 9}, num_local_experts=5,
                                           num_experts_per_tok=2, sliding_window=4, eos_token_id=0, bos_token_id=0),
                torch.float32, None),
    "phi3": (transformers.Phi3Config(**{**LLAMA, "head_dim": 6}, sliding_window=4, resid_pdrop=0.125, bos_token_id=0,
                                     eos_token_id=0, pad_token_id=None, rope_parameters={
                                         "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.7}),
             torch.float32, None),
    "qwen2": (transformers.Qwen2Config(**EQUAL, num_key_value_heads=2, use_sliding_window=True, sliding_window=3,
                                       max_window_layers=1), torch.float32, None),
    "qwen3": (transformers.Qwen3Config(**{**LLAMA, "num_hidden_layers": 3}, attention_bias=True,
                                       use_sliding_window=True, sliding_window=4, rms_norm_eps=1e-4, layer_types=[
                                           "sliding_attention", "full_attention", "sliding_attention"]),
              torch.float32, None),
    "qwen3_moe": (transformers.Qwen3MoeConfig(**LLAMA, moe_intermediate_size=7, num_experts=6, num_experts_per_tok=3,
                                              norm_topk_prob=True, rms_norm_eps=1e-4), torch.float32, None),
    "smollm3": (transformers.SmolLM3Config(**{**LLAMA, "num_hidden_layers": 4}, rms_norm_eps=1e-4, mlp_bias=True,
                                           use_sliding_window=True, sliding_window=4, no_rope_layers=[0, 1, 0, 1],
                                           bos_token_id=0, eos_token_id=0, pad_token_id=None,
                                           rope_parameters={"rope_type": "default", "rope_theta": 50.0}),
                torch.float32, None),
    "olmo2": (transformers.Olmo2Config(**EQUAL, num_key_value_heads=3, rms_norm_eps=1e-3, eos_token_id=0,
                                       pad_token_id=None), torch.float32, None),
    "olmo3": (transformers.Olmo3Config(
        **{**EQUAL, "num_hidden_layers": 3}, head_dim=6, num_key_value_heads=3, rms_norm_eps=1e-3, sliding_window=4,
        eos_token_id=0, pad_token_id=None, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
                         "full_attention": {"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0,
                                            "original_max_position_embeddings": 16}}), torch.float32, None),
    "olmoe": (transformers.OlmoeConfig(**{**EQUAL, "intermediate_size": 7}, num_key_value_heads=3, num_experts=4,
                                       num_experts_per_tok=3, rms_norm_eps=1e-3, eos_token_id=0, pad_token_id=None),
              torch.float32, None),
    "granite": (transformers.GraniteConfig(**{**LLAMA, "num_key_value_heads": 3}, embedding_multiplier=7.0,
                                           attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=6.0,
                                           mlp_bias=True, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0),
                torch.float32, None),
    "gemma2": (transformers.Gemma2Config(**{**LLAMA, "num_hidden_layers": 3}, rms_norm_eps=1e-3, sliding_window=4,
                                         query_pre_attn_scalar=7, attn_logit_softcapping=0.5,
                                         final_logit_softcapping=1.5, eos_token_id=0, bos_token_id=0, pad_token_id=None),
               torch.float32, None),
    "gemma3": (transformers.Gemma3TextConfig(**{**LLAMA, "num_hidden_layers": 7}, rms_norm_eps=1e-3, sliding_window=4,
                                             query_pre_attn_scalar=7, eos_token_id=0, bos_token_id=0, pad_token_id=None),
               torch.float32, None),
    "gemma3_scaled": (transformers.Gemma3TextConfig(
        **{**LLAMA, "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 6}, rms_norm_eps=1e-3, sliding_window=3,
        query_pre_attn_scalar=5, final_logit_softcapping=1.5, attention_bias=True, eos_token_id=0, bos_token_id=0,
        pad_token_id=None, layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
                         "full_attention": {"rope_type": "linear", "rope_theta": 100.0, "factor": 8.0}}),
        torch.float32, None),
    "nanochat": (transformers.NanoChatConfig(**EQUAL, num_key_value_heads=3, rms_norm_eps=1e-3, attention_bias=True,
                                             final_logit_softcapping=1.5, bos_token_id=0, eos_token_id=0,
                                             pad_token_id=None, rope_parameters={"rope_type": "default",
                                                                                 "rope_theta": 50.0}),
                 torch.float32, None),
    "bloom": (transformers.BloomConfig(vocab_size=29, hidden_size=18, n_layer=2, n_head=6, layer_norm_epsilon=1e-3,
                                       hidden_dropout=0.125, attention_dropout=0.25, bos_token_id=0, eos_token_id=0),
              torch.float32, None),
    "diffllama": (transformers.DiffLlamaConfig(**{**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 4},
                                               rms_norm_eps=1e-3, attention_bias=True, bos_token_id=0, eos_token_id=0,
                                               rope_parameters={"rope_type": "default", "rope_theta": 50.0}),
                  torch.float32, None),
    "minicpm3": (transformers.MiniCPM3Config(
        **EQUAL, num_key_value_heads=6, kv_lora_rank=7, q_lora_rank=5, qk_nope_head_dim=3, v_head_dim=3,
        qk_rope_head_dim=4, scale_emb=7, scale_depth=0.9, dim_model_base=6, rms_norm_eps=1e-3, bos_token_id=0,
        eos_token_id=0), torch.float32, None),
    "deepseek_v2": (transformers.DeepseekV2Config(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=6, moe_intermediate_size=7, first_k_dense_replace=1,
        n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2, n_group=3, topk_group=2,
        topk_method="group_limited_greedy", routed_scaling_factor=1.5, kv_lora_rank=5, q_lora_rank=None,
        qk_nope_head_dim=3, qk_rope_head_dim=6, v_head_dim=3, rms_norm_eps=1e-4, bos_token_id=0, eos_token_id=0,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.5,
                         "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 16}),
        torch.float32, None),
    "deepseek_v3": (transformers.DeepseekV3Config(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=6, moe_intermediate_size=7, first_k_dense_replace=1,
        n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, n_group=4, topk_group=2,
        routed_scaling_factor=2.5, kv_lora_rank=7, q_lora_rank=5, qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=3,
        rms_norm_eps=1e-4, bos_token_id=0, eos_token_id=0), torch.float32, None),
    "deepseek_v32": (transformers.DeepseekV32Config(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=6, moe_intermediate_size=7, first_k_dense_replace=1,
        n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, n_group=4, topk_group=2,
        routed_scaling_factor=2.5, kv_lora_rank=7, q_lora_rank=5, qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=3,
        index_topk=4, index_n_heads=9, index_head_dim=6, rms_norm_eps=1e-4, bos_token_id=0, eos_token_id=0),
        torch.float32, None),
    "glm_moe_dsa": (transformers.GlmMoeDsaConfig(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=6, moe_intermediate_size=7, first_k_dense_replace=1,
        n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, n_group=1, topk_group=1,
        routed_scaling_factor=1.5, kv_lora_rank=7, q_lora_rank=5, qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=3,
        index_topk=5, index_n_heads=8, index_head_dim=4, rms_norm_eps=1e-3, bos_token_id=0, eos_token_id=0),
        torch.float32, None),
    "qwen3_next": (transformers.Qwen3NextConfig(
        **{**LLAMA, "num_hidden_layers": 3, "head_dim": 6}, rms_norm_eps=1e-4, moe_intermediate_size=7, num_experts=6,
        num_experts_per_tok=3, shared_expert_intermediate_size=5, linear_num_key_heads=2, linear_num_value_heads=6,
        linear_key_head_dim=5, linear_value_head_dim=4, linear_conv_kernel_dim=3, layer_types=[
            "linear_attention", "full_attention", "linear_attention"], rope_parameters={
                "rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.7}), torch.float32, None),
    "qwen3_5": (transformers.Qwen3_5TextConfig(
        **{**LLAMA, "num_hidden_layers": 2}, rms_norm_eps=1e-4, linear_num_key_heads=3, linear_num_value_heads=3,
        linear_key_head_dim=4, linear_value_head_dim=6, linear_conv_kernel_dim=4, layer_types=[
            "linear_attention", "full_attention"], tie_word_embeddings=True, rope_parameters={
                "rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}), torch.float32, None),
    "olmo_hybrid": (transformers.OlmoHybridConfig(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=3, rms_norm_eps=1e-3, attention_bias=True,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=10, linear_value_head_dim=8,
        linear_conv_kernel_dim=3, eos_token_id=0, pad_token_id=None, layer_types=[
            "linear_attention", "full_attention", "linear_attention"], rope_parameters={
                "rope_type": "default", "rope_theta": None}), torch.float32, None),
    "gpt_oss": (transformers.GptOssConfig(
        **{**LLAMA, "intermediate_size": 7, "num_hidden_layers": 3, "head_dim": 12}, rms_norm_eps=1e-4, num_local_experts=5,
        num_experts_per_tok=3, sliding_window=4, swiglu_limit=0.3, swiglu_alpha=1.5, eos_token_id=0,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.5,
                         "truncate": False, "original_max_position_embeddings": 16}), torch.float32, None),
    "kimi_linear": (transformers.KimiLinearConfig(
        **{**EQUAL, "num_hidden_layers": 3}, num_key_value_heads=6, moe_intermediate_size=7, num_local_experts=6,
        num_experts_per_tok=3, n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.5, kv_lora_rank=7,
        qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=3, linear_num_heads=2, linear_head_dim=10,
        linear_conv_kernel_dim=3, rms_norm_eps=1e-4, bos_token_id=0, eos_token_id=0, pad_token_id=None, layer_types=[
            "linear_attention", "full_attention", "linear_attention"]), torch.float32, None),
    "bert": (transformers.BertConfig(**BERT, max_position_embeddings=11, type_vocab_size=3, layer_norm_eps=1e-3,
                                     hidden_dropout_prob=0.125, attention_probs_dropout_prob=0.25, pad_token_id=None),
             torch.float32, None),
    "modernbert": (transformers.ModernBertConfig(**{**BERT, "num_hidden_layers": 4}, max_position_embeddings=32,
                                                 norm_eps=1e-3, local_attention=5, pad_token_id=None, bos_token_id=0,
                                                 eos_token_id=0, cls_token_id=0, sep_token_id=0, rope_parameters={
                                                     "full_attention": {"rope_type": "default", "rope_theta": 50.0},
                                                     "sliding_attention": {"rope_type": "default", "rope_theta": 10.0}}),
                   torch.float32, None),
    "modernbert_biased": (transformers.ModernBertConfig(
        **BERT, max_position_embeddings=32, attention_bias=True, norm_bias=True, local_attention=4, pad_token_id=None,
        bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0,
        layer_types=["sliding_attention", "full_attention"]), torch.float32, None),
}
BATCH, LENGTH, STEPS = 3, 9, 10
TRAINING = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "adam_epsilon": 1e-8, "weight_decay": 0.1}


class Double:
    """The module torch, for code that asks for single precision even in double."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def in_its_type(function):
    """transformers asks for single precision here, even in double."""
    def call(x, dim=None, dtype=None, **others):
        return function(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype, **others)
    return call


def is_centred(module):
    """True for a norm whose weights are gains less 1."""
    name = type(module).__name__
    return name.startswith(("Gemma", "Qwen3Next", "Qwen3_5")) and name.endswith("RMSNorm")


class DoubleNorm(torch.nn.Module):
    """LlamaRMSNorm, and those of the other types, without its detour through single precision."""

    def __init__(self, norm):
        super().__init__()
        self.epsilon = getattr(norm, "variance_epsilon", None) or norm.eps
        self.weight = getattr(norm, "weight", None)
        if self.weight is None:  # NanoChat's, and those of DiffLlama's heads
            self.weight = torch.ones((), dtype=torch.float64)
        # Gains that are weights plus 1, which single precision rounds.
        gain = 1 + self.weight.to(torch.float32) if is_centred(norm) else self.weight
        self.added = (gain.double() - self.weight.double()).detach()

    def forward(self, x):
        return (self.added + self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def rotations(rope, pairs):
    """The frequencies, and the factor of the rotated components; the formulas are those of the types of scaling."""
    plain, factor = rope["rope_theta"] ** (-torch.arange(pairs, dtype=torch.float64) / pairs), 1.0
    if rope["rope_type"] == "linear":
        plain = plain / rope["factor"]
    elif rope["rope_type"] == "llama3":
        turns = rope["original_max_position_embeddings"] * plain / (2 * torch.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        plain = (1 - kept) * plain / rope["factor"] + kept * plain
    elif rope["rope_type"] == "yarn":
        length, base = rope["original_max_position_embeddings"], rope["rope_theta"]
        place = lambda turns: pairs * math.log(length / (turns * 2 * math.pi)) / math.log(base)
        low, high = place(rope.get("beta_fast", 32)), place(rope.get("beta_slow", 1))
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        grown = lambda slope: 0.1 * slope * math.log(rope["factor"]) + 1
        ramp = ((torch.arange(pairs, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
        plain = plain / rope["factor"] * ramp + plain * (1 - ramp)
        factor = grown(rope.get("mscale", 1)) / grown(rope.get("mscale_all_dim", 0))
    return plain, factor


class DoubleRotary(torch.nn.Module):
    """LlamaRotaryEmbedding likewise; Gemma 3's has other rotations for each type of layers."""

    def __init__(self, config):
        super().__init__()
        rope = config.rope_parameters
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        of_types = {None: rope} if "rope_type" in rope else rope
        self.is_complex, self.is_half = config.model_type == "deepseek_v2", config.model_type == "gpt_oss"
        self.rotations = {layer_type: rotations(each, int(width * each.get("partial_rotary_factor", 1)) // 2)
                          for layer_type, each in of_types.items()}

    def forward(self, x, position_ids, layer_type=None):
        frequencies, factor = self.rotations[layer_type]
        if position_ids.dim() == 3:  # Qwen 3.5's of time, height and width, which are one for text
            position_ids = position_ids[0]
        angles = position_ids[..., None].double() * frequencies
        if self.is_complex:
            return factor * torch.polar(torch.ones_like(angles), angles)
        if not self.is_half:
            angles = torch.cat((angles, angles), dim=-1)
        return (factor * angles.cos()).to(x.dtype), (factor * angles.sin()).to(x.dtype)


class DoubleRouter(torch.nn.Module):
    """MixtralTopKRouter likewise."""

    def __init__(self, router):
        super().__init__()
        self.weight, self.top_k = router.weight, router.top_k

    def forward(self, x):
        logits = F.linear(x.reshape(-1, self.weight.shape[1]), self.weight)
        weights, experts = F.softmax(logits, dim=-1).topk(self.top_k)
        return logits, weights / weights.sum(-1, keepdim=True), experts


class DoubleGroups(torch.nn.Module):
    """The routers of DeepSeek V2, V3 and V3.2 and GLM 5 likewise."""

    def __init__(self, router):
        super().__init__()
        self.weight, self.top_k, self.factor = router.weight, router.top_k, router.routed_scaling_factor
        self.groups, self.most = router.num_group, router.topk_group
        self.bias = getattr(router, "e_score_correction_bias", None)
        self.normalized = getattr(router, "norm_topk_prob", False)

    def forward(self, x):
        logits = F.linear(x.reshape(-1, self.weight.shape[1]), self.weight)
        scores = logits.softmax(-1) if self.bias is None else logits.sigmoid()
        ranked = scores.detach() + (0 if self.bias is None else self.bias)
        apart = ranked.unflatten(-1, (self.groups, -1))
        order = apart.topk(1 if self.bias is None else 2).values.sum(-1).argsort(-1, descending=True)
        for group in order[:, self.most:].T:
            apart[torch.arange(len(apart)), group] = -math.inf
        experts = ranked.topk(self.top_k).indices
        weights = scores.gather(1, experts)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return logits, self.factor * weights, experts


def rotated(queries, keys, turns):
    """apply_rotary_emb of DeepSeek V2 likewise."""
    def turned(x):
        pairs = (x if x.dtype == torch.float64 else x.float()).contiguous()
        pairs = torch.view_as_complex(pairs.reshape(*x.shape[:-1], -1, 2)) * turns.unsqueeze(1)
        return torch.view_as_real(pairs).flatten(3).type_as(x)
    return turned(queries), turned(keys)


def with_gaps(topk):
    """topk() that refuses scores of an indexer, of three axes, that are too close for a choice of all programs."""
    def checked(scores, k, dim=-1, **more):
        if scores.dim() == 3 and k < scores.shape[-1]:
            best = topk(scores, k + 1, dim=dim).values
            gaps = (best[..., k - 1] - best[..., k])[best[..., k].isfinite()]
            assert gaps.numel() == 0 or gaps.min() > 1e-6, f"scores {gaps.min():.1e} apart"
        return topk(scores, k, dim=dim, **more)
    return checked


def in_double(model):
    model = model.double()
    sys.modules[type(model).__module__].torch = Double()
    for module in model.modules():
        if isinstance(module, torch.nn.Conv1d):  # ours has the last tap less 1, which single precision rounds
            tap = module.weight.data[..., -1]
            tap.copy_((tap - 1).to(torch.float32).double() + 1)
        if hasattr(module, "embed_scale"):  # a buffer that was rounded to single precision
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)
        if type(module).__name__ == "ModernBertAttention":  # which rotates in single precision
            transformers.models.modernbert.modeling_modernbert.apply_rotary_pos_emb = \
                transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, DoubleNorm(child))
            elif type(child).__name__ == "MixtralTopKRouter":
                setattr(parent, name, DoubleRouter(child))
            elif type(child).__name__ in ("DeepseekV2TopkRouter", "DeepseekV3TopkRouter", "DeepseekV32TopkRouter",
                                           "GlmMoeDsaTopkRouter"):
                setattr(parent, name, DoubleGroups(child))
            elif type(child).__name__.endswith("RotaryEmbedding"):
                setattr(parent, name, DoubleRotary(model.config))
            elif type(child).__name__ == "BloomGelu":  # with eight digits of sqrt(2 / pi)
                setattr(parent, name, torch.nn.GELU("tanh"))
    return model


def class_of(config):
    is_encoder = config.model_type in ENCODERS
    return transformers.AutoModelForMaskedLM if is_encoder else transformers.AutoModelForCausalLM


def write_checkpoint(name, path):
    config, dtype, most = CASES[name]
    model, random = class_of(config).from_config(config), generator(name + "/parameters")
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            gain = parameter.dim() == 1 and key.endswith("weight") and not is_centred(
                model.get_submodule(key.rpartition(".")[0]))
            scale = 0.3 if parameter.dim() > 1 else 0.1
            parameter.copy_((normal(random, *parameter.shape, scale=scale) + gain).to(dtype))
        for key, buffer in sorted(model.named_buffers()):
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(normal(random, *buffer.shape, scale=0.1))
    shutil.rmtree(path, ignore_errors=True)
    model.to(dtype).save_pretrained(path, **({} if most is None else {"max_shard_size": most}))
    (path / "generation_config.json").unlink(missing_ok=True)  # which encoders lack
    if config.model_type == "olmo_hybrid":
        as_published(path, config)


def as_published(path, config):
    """OLMo Hybrid as it was published, and as transformers reads it; it writes convolutions in equal parts, and
    another name for the first norm of layers with full attention."""
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for layer, kind in enumerate(config.layer_types):
        start = f"model.layers.{layer}."
        if kind == "full_attention":
            tensors[start + "post_attention_layernorm.weight"] = tensors.pop(start + "feedforward_layer_norm.weight")
            continue
        names = [f"{start}linear_attn.{part}_conv1d.weight" for part in "qkv"]
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        parts = torch.cat([tensors[name] for name in names]).split([keys, keys, values])
        tensors.update({name: part.contiguous() for name, part in zip(names, parts)})
    safetensors.torch.save_file(tensors, file, {"format": "pt"})


def load(path, dtype):
    for module in list(sys.modules.values()):
        if isinstance(vars(module).get("torch"), Double):
            module.torch = torch
    # The other knows no softcap, no ALiBi and no sinks.
    attention = "eager" if path.name in ("gemma2", "bloom", "gpt_oss") else "sdpa"
    model = class_of(transformers.AutoConfig.from_pretrained(path)).from_pretrained(
        path, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager")  # works in double too
    return (in_double(model) if dtype == torch.float64 else model).eval()  # no dropout, in fine-tuning neither


@torch.no_grad()
def continued(model, ids, count):
    """The likeliest tokens after `ids`, one by one with transformers' cache."""
    cache, tokens = None, [ids]
    for _ in range(count):
        out = model(tokens[-1], cache=cache, use_cache=True)
        cache = out.cache
        tokens.append(out.logits[:, -1:].argmax(-1))
    return torch.cat(tokens[1:], 1)


def losses_of(trained, decaying, loss_of, batches, dtype):
    """The loss of each batch before its step; only the parameters `decaying` have a weight decay."""
    ids, losses = {id(p) for p in decaying}, []
    optimizer = torch.optim.AdamW(
        [{"params": decaying, "weight_decay": TRAINING["weight_decay"]},
         {"params": [p for p in trained if id(p) not in ids], "weight_decay": 0.0}],
        lr=TRAINING["learning_rate"], betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["adam_epsilon"])
    for batch in batches:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return numpy.array(losses, dtype=numpy.float64 if dtype == torch.float64 else numpy.float32)


def masked(random, ids):
    """Some tokens become the mask token; the labels are those tokens, and -100 elsewhere."""
    chosen = torch.rand(ids.shape, generator=random) < CHOSEN
    return torch.where(chosen, MASK, ids), torch.where(chosen, ids, -100)


def fine_tune(path, batches, dtype, labels=None):
    """Returns the losses: in double from the logits, in single precision as transformers computes them. With `labels`,
    they are of masked tokens."""
    model = load(path, dtype)
    parameters = [p for _, p in sorted(model.named_parameters())]
    others = ("conv1d.weight", "_bias", "A_log")
    decaying = [p for name, p in model.named_parameters() if p.dim() >= 2 and not name.endswith(others)]

    def loss_of(step):
        batch = batches[step]
        if dtype == torch.float32:
            return model(batch, labels=batch if labels is None else labels[step]).loss
        if labels is not None:
            return F.cross_entropy(model(batch).logits.flatten(0, 1), labels[step].flatten(), ignore_index=-100)
        return F.cross_entropy(model(batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    return losses_of(parameters, decaying, loss_of, range(len(batches)), dtype)


def make():
    transformers.models.deepseek_v2.modeling_deepseek_v2.apply_rotary_emb = rotated
    F.softmax, torch.sum = in_its_type(F.softmax), in_its_type(torch.sum)
    torch.Tensor.float = lambda x: x if x.dtype == torch.float64 else x.to(torch.float32)
    torch.Tensor.topk = with_gaps(torch.Tensor.topk)
    file = GoldenFile()
    for name, (config, _, _) in CASES.items():
        path, random = pathlib.Path("hugging_face") / name, generator(name)
        write_checkpoint(name, path)
        ids = integers(random, config.vocab_size, BATCH, LENGTH)
        batches, labels = integers(random, config.vocab_size, STEPS, BATCH, LENGTH), None
        if config.model_type in ENCODERS:
            batches, labels = masked(random, batches)
            file.add(f"{name}/targets", torch.where(labels < 0, -1, labels))
        with torch.no_grad():
            logits, logits_f32 = load(path, torch.float64)(ids).logits, load(path, torch.float32)(ids).logits
        print(f"{name}: f32 logits differ from f64 ones by {(logits - logits_f32).abs().max():.1e}")
        file.add(f"{name}/ids", ids)
        file.add(f"{name}/logits", logits)
        file.add(f"{name}/logits_f32", logits_f32)
        if config.model_type not in ("gpt2", *ENCODERS):  # whose positions end before, or which continue nothing
            file.add(f"{name}/continued", continued(load(path, torch.float64), ids, 50))
        file.add(f"{name}/batches", batches)
        file.add(f"{name}/losses", fine_tune(path, batches, torch.float64, labels))
        file.add(f"{name}/losses_f32", fine_tune(path, batches, torch.float32, labels))
        file.options[name] = TRAINING
    return file
