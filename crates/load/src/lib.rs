//! unruly-load
