package org.unruly.jvm.stream;

/** What a stream has done so far, as its rows tell it; read from any thread. */
public interface Tally {
  /** Messages sent or received. */
  long messages();

  /** Messages that did not come, or {@code Long.MIN_VALUE} where this is not known. */
  long lost();

  /** Messages that came again, or {@code Long.MIN_VALUE}. */
  long duplicated();

  /** Messages that came after a later one, or {@code Long.MIN_VALUE}. */
  long reordered();

  /** Messages that may yet come, or {@code Long.MIN_VALUE}. */
  long inFlight();
}
