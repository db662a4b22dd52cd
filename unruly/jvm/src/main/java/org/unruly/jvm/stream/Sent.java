package org.unruly.jvm.stream;

import org.unruly.jvm.foreign.ForeignRecord;

/** What a writer has sent; what became of it only the reader knows. */
public final class Sent implements Tally {
  private final Counter messages = new Counter();

  void add() {
    messages.add(1);
  }

  @Override
  public long messages() {
    return messages.get();
  }

  @Override
  public long lost() {
    return ForeignRecord.ABSENT;
  }

  @Override
  public long duplicated() {
    return ForeignRecord.ABSENT;
  }

  @Override
  public long reordered() {
    return ForeignRecord.ABSENT;
  }

  @Override
  public long inFlight() {
    return ForeignRecord.ABSENT;
  }
}
