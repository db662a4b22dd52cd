//! The plans that come with the program.

use anyhow::Result;
use unruly_plan::did_you_mean;

/// A plan by its name.
pub(crate) const PLANS: [(&str, &str); 33] = [
    ("demo", include_str!("../../../plans/demo.toml")),
    ("group-rpc", include_str!("../../../plans/group-rpc.toml")),
    (
        "group-rpc-jvm",
        include_str!("../../../plans/group-rpc-jvm.toml"),
    ),
    ("slow-node", include_str!("../../../plans/slow-node.toml")),
    ("echo", include_str!("../../../plans/echo.toml")),
    (
        "n-tier-load",
        include_str!("../../../plans/n-tier-load.toml"),
    ),
    (
        "n-tier-bursts",
        include_str!("../../../plans/n-tier-bursts.toml"),
    ),
    (
        "n-tier-pools",
        include_str!("../../../plans/n-tier-pools.toml"),
    ),
    (
        "n-tier-collector",
        include_str!("../../../plans/n-tier-collector.toml"),
    ),
    (
        "n-tier-crossed",
        include_str!("../../../plans/n-tier-crossed.toml"),
    ),
    ("three-tier", include_str!("../../../plans/three-tier.toml")),
    (
        "three-tier-full",
        include_str!("../../../plans/three-tier-full.toml"),
    ),
    (
        "three-tier-recovery",
        include_str!("../../../plans/three-tier-recovery.toml"),
    ),
    (
        "three-tier-recovery-clients",
        include_str!("../../../plans/three-tier-recovery-clients.toml"),
    ),
    (
        "three-tier-layers",
        include_str!("../../../plans/three-tier-layers.toml"),
    ),
    ("store", include_str!("../../../plans/store.toml")),
    ("stores", include_str!("../../../plans/stores.toml")),
    (
        "store-levels",
        include_str!("../../../plans/store-levels.toml"),
    ),
    (
        "store-threads",
        include_str!("../../../plans/store-threads.toml"),
    ),
    ("store-ramp", include_str!("../../../plans/store-ramp.toml")),
    (
        "store-nodes",
        include_str!("../../../plans/store-nodes.toml"),
    ),
    (
        "store-clients",
        include_str!("../../../plans/store-clients.toml"),
    ),
    (
        "gray-failures",
        include_str!("../../../plans/gray-failures.toml"),
    ),
    (
        "store-faults",
        include_str!("../../../plans/store-faults.toml"),
    ),
    (
        "stream-slow-reader",
        include_str!("../../../plans/stream-slow-reader.toml"),
    ),
    (
        "stream-collectors",
        include_str!("../../../plans/stream-collectors.toml"),
    ),
    (
        "throughput-stability",
        include_str!("../../../plans/throughput-stability.toml"),
    ),
    ("middleware", include_str!("../../../plans/middleware.toml")),
    (
        "middleware-full",
        include_str!("../../../plans/middleware-full.toml"),
    ),
    (
        "unruly-1-percent",
        include_str!("../../../plans/unruly-1-percent.toml"),
    ),
    (
        "unruly-1-percent-full",
        include_str!("../../../plans/unruly-1-percent-full.toml"),
    ),
    (
        "unruly-1-percent-open",
        include_str!("../../../plans/unruly-1-percent-open.toml"),
    ),
    (
        "unruly-1-percent-sizes",
        include_str!("../../../plans/unruly-1-percent-sizes.toml"),
    ),
];

/// Returns the text of a shipped plan.
///
/// # Errors
///
/// When there is no such plan.
pub(crate) fn plan(name: &str) -> Result<&'static str> {
    let found = PLANS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let known = PLANS.map(|(name, _)| name);
        let hint = did_you_mean(name, known, "unruly plans lists the shipped plans");
        anyhow::anyhow!("{name}: there is no such plan; hint: {hint}")
    })
}

/// The first comment of a plan: what it is for.
pub(crate) fn purpose(text: &str) -> &str {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("# ")
}
