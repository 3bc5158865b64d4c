"""The gate benchmark measures every gate at every size."""

from __future__ import annotations

from benchmarks.trainer.gates import GateBenchSizes, bench_gates


def test_every_gate_at_every_size() -> None:
    sizes = GateBenchSizes(widths=[8], num_experts=[60, 120], k=4, batches=[1, 8], rounds=1)
    result = bench_gates(sizes, "cpu")
    assert [(point.width, point.num_experts, point.batch) for point in result.points] == [
        (8, count, batch) for count in (60, 120) for batch in (1, 8)
    ]
    for point in result.points:
        flat, product_key, two_level = point.gates
        assert flat.gate == "flat"
        assert flat.speedup == flat.flops_share == 1
        assert (product_key.gate, two_level.gate[:11]) == ("product-key", "two-level, ")
        assert flat.flops_per_token == 2 * point.width * point.num_experts
        assert product_key.flops_share < 0.5
