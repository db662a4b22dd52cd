package org.unruly.apps;

/**
 * The trace of a request, and the span that calls; all zero if the request has none.
 *
 * @param high first half of the trace's id
 * @param low second half of the trace's id
 * @param parent id of the span that calls
 */
public record Trace(long high, long low, long parent) {
  /** No trace. */
  public static final Trace NONE = new Trace(0, 0, 0);

  /** Returns true if its spans are wanted. */
  public boolean isWanted() {
    return (high | low) != 0;
  }
}
