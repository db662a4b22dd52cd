//! unruly-agent
