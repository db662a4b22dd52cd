package org.unruly.jvm.agent;

/**
 * How far a server trusts who connects to it.
 *
 * @param strangerNs a stranger must say a valid request within this time
 * @param strangers at one time; one more closes the oldest
 * @param connections at one time, of all kinds
 * @param unreadNs who has not read its replies for so long, with full buffers, is closed
 */
public record Limits(long strangerNs, int strangers, int connections, long unreadNs) {
  /** Those of the servers in Rust. */
  public static final Limits USUAL = new Limits(5_000_000_000L, 256, 1024, 10_000_000_000L);
}
