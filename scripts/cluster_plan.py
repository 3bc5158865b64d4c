"""Plan training on a cluster: print the figures of docs/large-models.md.

    python -m scripts.cluster_plan

A language model of Llama-3-70B's size, an MxD for layer 40, on 8 and on 64 H200s. Sizes follow from the cost model.
Rates are vendors' peak figures, and the share that is reached is an assumption. Nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.training.rates import ADAMW_BYTES, BFLOAT16, FLOAT32, Forward, LayerSizes


@dataclass(frozen=True)
class LanguageModelSizes:
    """Sizes of a causal language model with gated MLPs and grouped-query attention."""

    width: int
    hidden_width: int
    layers: int
    vocabulary: int
    heads: int
    key_value_heads: int

    @property
    def block_parameters(self) -> int:
        """Parameters of one block, without norms."""
        attention = 2 * self.width**2 + 2 * self.width**2 * self.key_value_heads // self.heads
        return attention + 3 * self.width * self.hidden_width

    @property
    def parameters(self) -> int:
        """Parameters of all blocks, the embedding and the unembedding."""
        return self.layers * self.block_parameters + 2 * self.vocabulary * self.width

    def used_parameters(self, layer: int) -> int:
        """Parameters that a forward pass up to a layer reads: its blocks and the embedding."""
        return (layer + 1) * self.block_parameters + self.vocabulary * self.width

    def forward(self, layer: int, context: int) -> Forward:
        """Forward pass up to a layer."""
        blocks = layer + 1
        return Forward(blocks, blocks * self.block_parameters, self.width, self.hidden_width, context)

    def flops_per_token(self, layer: int, context: int) -> int:
        """FLOPs per token of a forward pass up to a layer."""
        return self.forward(layer, context).flops


@dataclass(frozen=True)
class Devices:
    """Devices and their interconnect."""

    count: int
    per_machine: int
    flops: float
    """Vendor's peak FLOP/s of one device in the model's dtype."""
    utilization: float
    """Assumed share of the peak that is reached."""
    link: float
    """Bytes per second between devices of one machine."""
    network: float
    """Bytes per second between machines."""


@dataclass(frozen=True)
class Plan:
    """Memory, compute and communication of one device."""

    language_model_bytes: float
    layer_bytes: float
    activation_bytes: float
    tokens_per_second: float
    """Throughput of all devices, if communication overlaps with compute."""
    flops_per_token: int
    seconds_per_step: float
    """Compute time per step."""
    language_model_link_seconds: float
    """Seconds per step for gathering the model's weights within a machine."""
    layer_link_seconds: float
    """Seconds per step for exchanging tokens with the experts within a machine."""
    layer_network_seconds: float
    """Seconds per step for averaging gradients over the machines."""

    @property
    def bytes(self) -> float:
        """Memory of one device."""
        return self.language_model_bytes + self.layer_bytes + self.activation_bytes

    def hours(self, tokens: float) -> float:
        """Training time for a number of tokens, in hours."""
        return tokens / self.tokens_per_second / 3600


def plan_cluster(
    language_model: LanguageModelSizes,
    index: int,
    layer: LayerSizes,
    devices: Devices,
    tokens_per_device: int,
    context: int,
) -> Plan:
    """Plan training on a cluster with ``tokens_per_device`` tokens per device and step.

    Model and experts are sharded over the devices of a machine, and each machine has a copy of both. Then only
    gradients travel between machines.
    """
    inside = min(devices.per_machine, devices.count)
    machines = devices.count // inside
    remote_share = (inside - 1) / inside
    model_bytes = BFLOAT16 * language_model.used_parameters(index)
    flops = language_model.flops_per_token(index, context) + layer.step_flops_per_token
    rate = devices.count * devices.flops * devices.utilization / flops
    rows = FLOAT32 * tokens_per_device * (inside - 1)
    local_parameters = layer.dense_parameters + layer.table_parameters / inside
    averaged_inside = 2 * remote_share * FLOAT32 * layer.dense_parameters
    averaged_outside = 2 * (machines - 1) / machines * FLOAT32 * local_parameters
    return Plan(
        language_model_bytes=model_bytes / inside + 2 * BFLOAT16 * language_model.block_parameters,
        layer_bytes=ADAMW_BYTES * local_parameters,
        # Scores of all tokens of the machine against this device's experts, and the rows of an activation buffer.
        activation_bytes=FLOAT32 * tokens_per_device * layer.num_experts
        + 16 * FLOAT32 * tokens_per_device * (layer.input_width + layer.output_width),
        tokens_per_second=rate,
        flops_per_token=flops,
        seconds_per_step=tokens_per_device * devices.count / rate,
        language_model_link_seconds=remote_share * model_bytes / devices.link,
        layer_link_seconds=(rows * (layer.input_width + 2 * layer.output_width) + averaged_inside) / devices.link,
        layer_network_seconds=averaged_outside / devices.network,
    )


LANGUAGE_MODEL = LanguageModelSizes(8192, 28_672, 80, 128_256, 64, 8)
LAYER, LAYER_INDEX = LayerSizes(8192, 28_672, 8192, 219_136, 32, 2), 40
CONTEXT, TOKENS_PER_DEVICE, TOKENS = 128, 4096, 480e6


def plan_of(devices: int) -> Plan:
    """Plan for a number of H200s in machines of eight."""
    cluster = Devices(devices, 8, 989e12, 0.4, 450e9, 50e9)
    return plan_cluster(LANGUAGE_MODEL, LAYER_INDEX, LAYER, cluster, TOKENS_PER_DEVICE, CONTEXT)


def lines() -> list[str]:
    """Figures as the page has them."""
    plans = few, many = plan_of(8), plan_of(64)
    used = LANGUAGE_MODEL.used_parameters(LAYER_INDEX)
    table, dense = LAYER.table_parameters, LAYER.dense_parameters
    language_model_flops = LANGUAGE_MODEL.flops_per_token(LAYER_INDEX, CONTEXT)
    return [
        f"| language model | {LANGUAGE_MODEL.parameters / 1e9:.1f} B | {2 * LANGUAGE_MODEL.parameters / 1e9:.0f} GB |",
        f"the only parts that are used | {used / 1e9:.1f} B | {2 * used / 1e9:.0f} GB |",
        f"| layer | {LAYER.parameters / 1e9:.2f} B | {ADAMW_BYTES * LAYER.parameters / 1e9:.0f} GB with",
        f"can be sharded | {table / 1e9:.2f} B | {ADAMW_BYTES * table / 1e9:.0f} GB |",
        f"on every GPU | {dense / 1e9:.2f} B | {ADAMW_BYTES * dense / 1e9:.0f} GB |",
        f"{language_model_flops / 1e9:.1f} GFLOP. The step",
        f"{LAYER.step_flops_per_token / 1e9:.1f} GFLOP, of which {LAYER.gate_flops / 1e9:.1f} score all experts",
        "| **memory per GPU** | " + " | ".join(f"**{plan.bytes / 1e9:.0f} GB**" for plan in plans) + " |",
        _row("compute per step", [f"{plan.seconds_per_step:.2f} s" for plan in plans]),
        _row("weights, within the machine", [f"{plan.language_model_link_seconds:.2f} s" for plan in plans]),
        _row("encoder gradients, within the machine", [f"{plan.layer_link_seconds:.2f} s" for plan in plans]),
        _row("averaging gradients between machines", ["none", f"{many.layer_network_seconds:.2f} s"]),
        _row("with communication overlapped", [f"{round(plan.tokens_per_second, -3):,.0f}" for plan in plans]),
        f"| **480M tokens** | **{few.hours(TOKENS):.1f} hours** | **{60 * many.hours(TOKENS):.0f} minutes** |",
    ]


def _row(ends: str, cells: list[str]) -> str:
    return f"{ends} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(lines()))
