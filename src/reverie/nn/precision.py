"""Which arithmetic a device is fast in."""

from __future__ import annotations

import torch


def in_half(precision: str, device: torch.device) -> bool:
    """Whether to compute in bfloat16: as asked, or where the hardware has instructions for it."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
